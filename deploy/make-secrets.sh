#!/bin/sh
# Make every secret of a deployment, once: keys, certificates for TLS, and a password for each user of Redis and of Kafka.
#   sh make-secrets.sh [FOLDER] [REDIS_HOST:PORT]
# MODEL: whose keys the users may touch (default: the model of streamtopic.example.toml). REDIS_VERSION=6: for Redis 6.2.
# LEDGER: name of the model's ledger, such as example.org/news (default: streamtopic/MODEL); it must end in the model's.
# CA_FILE: where processes find the authority's certificate (default: /ca.pem). KAFKA_HOSTS: names of Kafka in its
# certificate (default: kafka). Before the certificates end, after 825 days: certificate.sh with the same names (it needs openssl).
# SUPPRESSION=1: make suppression.key too, for models where what was forgotten is refused when it is sent again.
# STREAMTOPIC: how to run the program, for instance "docker run --rm -u $(id -u) -v $PWD:/here -w /here streamtopic:local".
set -eu
umask 077
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/secrets}
redis=${2:-redis:6379}
model=${MODEL:-$(sed -n 's/^model = "\(.*\)"$/\1/p' "$here/streamtopic.example.toml")}
case $model in
  '' | *[!A-Za-z0-9_-]*) echo "make-secrets.sh: MODEL is not the name of a model: letters, digits, - and _" >&2; exit 2 ;;
esac
# Redis 6.2 does not know keys that a user may only read.
[ "${REDIS_VERSION:-7}" = 6 ] && readable='~' || readable='%R~'

if [ -e "$folder" ]; then
  echo "make-secrets.sh: $folder is there already: subscribers would refuse new keys; name another folder for a new deployment" >&2
  exit 2
fi
mkdir -p "$folder"
# Half a folder would be refused by the next run, and mistaken for a whole one.
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
${STREAMTOPIC:-streamtopic} keys new --to "$folder" --name "${LEDGER:-streamtopic/$model}" >/dev/null
# shellcheck disable=SC2046  # each name is an argument
sh "$here/certificate.sh" "$folder" kafka $(echo "${KAFKA_HOSTS:-kafka}" | tr , ' ') localhost 127.0.0.1
sh "$here/certificate.sh" "$folder" redis "${redis%:*}" localhost 127.0.0.1

if [ "${SUPPRESSION:-0}" = 1 ]; then
  ${STREAMTOPIC:-streamtopic} keys suppression --to "$folder" >/dev/null
fi

# Passwords at Kafka, for kafka-users.sh.
for user in producer ingest schedule serve subscriber operator; do
  od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$folder/$user.kafka"
done

# What opens the pages of `serve`, and lets programs send requests for deletions.
od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$folder/serve.token"

# Redis takes neither comments nor continued lines in a file of users.
awk '/^#/ || /^$/ { next } /^user/ { if (line) print line; line = $0; next } { sub(/^ +/, " "); line = line $0 }
     END { print line }' "$here/redis-users.acl" |
sed -e "s/{st:MODEL/{st:$model/g" -e "s/%R~/$readable/g" |
while read -r user name rest; do
  case $rest in
    *'#PASSWORD'*)
      password=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
      digest=$(printf %s "$password" | sha256sum | cut -d ' ' -f 1)
      printf 'rediss://%s:%s@%s/0?ssl_ca_certs=%s' "$name" "$password" "$redis" "${CA_FILE:-/ca.pem}" >"$folder/$name.url"
      rest=$(printf %s "$rest" | sed "s/#PASSWORD/#$digest/") ;;
  esac
  printf '%s %s %s\n' "$user" "$name" "$rest"
done >"$folder/redis-users.acl"
# Redis runs as another user and must read its file, which holds digests of random passwords only.
chmod 644 "$folder/signing.pub" "$folder/ca.pem" "$folder/redis-users.acl"
trap - EXIT
echo "secrets are in $folder: keep a copy of signing.key, noise.key and receipt.key where the service cannot reach it"
if [ "${SUPPRESSION:-0}" = 1 ]; then
  echo "keep a copy of suppression.key as well: without it nobody can tell who was suppressed, and ingest does not start"
fi
echo "ca.key signs certificates, and no server needs it: move it offline"
