#!/bin/sh
# Say to Kafka who may do what with the topics of one model. Safe to repeat.
#   sh kafka-acls.sh MODEL BOOTSTRAP_SERVER [ADMIN.properties]
# KAFKA_ACLS: where Kafka's own tool is (default: kafka-acls.sh). A principal is named for its role; give each of several
# producers a name of its own, PRODUCERS="User:wiki User:mail", and the subscribers as well.
# The broker needs an authorizer, `authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer`, and
# must not allow what no rule speaks of (`allow.everyone.if.no.acl.found`, which is false unless set).
set -eu
model=$1
server=$2
admin=${3:-}
tool=${KAFKA_ACLS:-kafka-acls.sh}
group=${GROUP:-streamtopic-$model}

rule() {
  "$tool" --bootstrap-server "$server" ${admin:+--command-config "$admin"} --add --force "$@" >/dev/null
}
documents=$model.documents releases=$model.releases receipts=$model.receipts rejected=$model.rejected

# Whoever may write a document may also delete it: that is what a record under its id means.
for user in ${PRODUCERS:-User:producer}; do
  rule --allow-principal "$user" --operation Write --operation Describe --topic "$documents"
done

# Reads documents, writes those of another partition to their own, and pointers to what it refuses.
rule --allow-principal User:ingest --operation Read --operation Write --operation Describe --topic "$documents"
rule --allow-principal User:ingest --operation Read --operation Write --operation Describe --topic "$rejected"
rule --allow-principal User:ingest --operation Read --operation Describe --group "$group"

# Makes versions from what is counted; it publishes nothing by itself. It looks through the documents topic for what
# deletions have left there.
rule --allow-principal User:schedule --operation Read --operation Describe \
  --topic "$documents" --topic "$releases" --topic "$receipts"

# Publishes what is staged and signed.
rule --allow-principal User:publish --operation Read --operation Write --operation Describe \
  --topic "$releases" --topic "$receipts"

for user in ${SUBSCRIBERS:-User:subscriber}; do
  rule --allow-principal "$user" --operation Read --operation Describe --topic "$releases" --topic "$receipts"
done

# init, doctor, add, delete, verify, report, rebuild; not a super user: no other topics, no users, no rules.
rule --allow-principal User:operator --operation Create --operation Describe --operation DescribeConfigs \
  --operation AlterConfigs --operation Alter --operation Read --operation Write \
  --topic "$documents" --topic "$releases" --topic "$receipts" --topic "$rejected"
rule --allow-principal User:operator --operation Read --operation Describe --group "$group"

# Nobody needs a transaction, and an open one would hide the records after it from every reader.
rule --deny-principal 'User:*' --operation All --transactional-id '*'
echo "rules for $model are set: \`$tool --list\` shows them"
