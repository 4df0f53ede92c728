#!/bin/sh
# Give each principal its rights to the topics of one model at Kafka. Safe to repeat.
#   sh kafka-acls.sh MODEL BOOTSTRAP_SERVER [ADMIN.properties]
# REQUESTERS: who may ask that people or lists of documents are forgotten (default: nobody but the operator).
# KAFKA_ACLS: where Kafka's own tool is (default: kafka-acls.sh). A principal is named for its role; give each of several
# producers a name of its own, PRODUCERS="User:wiki User:mail", and the subscribers as well.
# The broker needs an authorizer, `authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer`, and
# must refuse every act without a rule (`allow.everyone.if.no.acl.found`, which is false unless set).
set -eu
model=$1
server=$2
admin=${3:-}
tool=${KAFKA_ACLS:-kafka-acls.sh}
group=${GROUP:-streamtopic-$model}

rule() {
  "$tool" --bootstrap-server "$server" ${admin:+--command-config "$admin"} --add --force "$@" >/dev/null
}
documents=$model.documents requests=$model.requests releases=$model.releases ledger=$model.ledger rejected=$model.rejected

# Whoever may write a document may also delete it: a record without a value under its id is a delete.
for user in ${PRODUCERS:-User:producer}; do
  rule --allow-principal "$user" --operation Write --operation Describe --topic "$documents"
done

# Whoever may ask may have anybody forgotten, so this is a right of its own.
for user in ${REQUESTERS:-}; do
  rule --allow-principal "$user" --operation Write --operation Describe --topic "$requests"
done

# Reads documents, and the requests that suppress some. It asks for deletes in a foreign partition there, and writes
# pointers to refused records.
rule --allow-principal User:ingest --operation Read --operation Write --operation Describe \
  --topic "$documents" --topic "$requests" --topic "$rejected"
rule --allow-principal User:ingest --operation Read --operation Describe --group "$group"

# Makes versions from the counts, and publishes them and the ledger. It looks through the documents topic for records
# that deletions have left there, carries requests out, and writes a tombstone for each that has ended.
rule --allow-principal User:schedule --operation Read --operation Write --operation Describe \
  --topic "$documents" --topic "$requests" --topic "$releases" --topic "$ledger"
# Before it signs anything, it looks whether the settings of these topics keep every record; without this right it would
# see no settings, and find nothing wrong with them.
rule --allow-principal User:schedule --operation DescribeConfigs --topic "$releases" --topic "$ledger"

# Shows versions, the ledger and where records were refused; it cannot read a document, so the operator tries those again.
rule --allow-principal User:serve --operation Read --operation Describe \
  --topic "$releases" --topic "$ledger" --topic "$rejected"
rule --allow-principal User:serve --operation Describe --topic "$documents"
# It takes requests in, and finds one that was sent before.
rule --allow-principal User:serve --operation Read --operation Write --operation Describe --topic "$requests"
# It says whether somebody counts the partitions; without the right to read, it cannot join the group.
rule --allow-principal User:serve --operation Describe --group "$group"

for user in ${SUBSCRIBERS:-User:subscriber}; do
  rule --allow-principal "$user" --operation Read --operation Describe --topic "$releases" --topic "$ledger"
done

# init, doctor, add, delete, verify, report, rebuild; not a super user: no other topics, no users, no rules.
rule --allow-principal User:operator --operation Create --operation Describe --operation DescribeConfigs \
  --operation AlterConfigs --operation Alter --operation Read --operation Write \
  --topic "$documents" --topic "$requests" --topic "$releases" --topic "$ledger" --topic "$rejected"
rule --allow-principal User:operator --operation Read --operation Describe --group "$group"

# Nobody needs a transaction, and an open one would hide the records after it from every reader.
rule --deny-principal 'User:*' --operation All --transactional-id '*'
echo "rules for $model are set: \`$tool --list\` shows them"
