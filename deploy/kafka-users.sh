#!/bin/sh
# Make the users of Kafka, one for each secret kafka_ROLE in /run/secrets, and give them their rights. Safe to repeat.
#   sh kafka-users.sh BOOTSTRAP_SERVER [ADMIN.properties]
# MODEL: the model's name. KAFKA_BIN: folder of Kafka's own tools. SECRETS: folder of the passwords.
set -eu
umask 077
server=$1
admin=${2:-}
secrets=${SECRETS:-/run/secrets}
given=$(mktemp)
trap 'rm -f "$given"' EXIT

for file in "$secrets"/kafka_*; do
  user=${file##*/kafka_}
  # In a file: arguments can be read by every process on the machine.
  printf 'SCRAM-SHA-512=password=%s\n' "$(cat "$file")" >"$given"
  "$KAFKA_BIN/kafka-configs.sh" --bootstrap-server "$server" ${admin:+--command-config "$admin"} \
    --alter --entity-type users --entity-name "$user" --add-config-file "$given" >/dev/null
done
KAFKA_ACLS=$KAFKA_BIN/kafka-acls.sh sh "$(dirname "$0")/kafka-acls.sh" "$MODEL" "$server" ${admin:+"$admin"}
