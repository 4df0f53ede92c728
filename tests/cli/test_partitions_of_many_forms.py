"""Keys of one document that differ in their bytes belong to several partitions: such topics are refused."""

import json

import pytest

from streamtopic.state.redis_keys import ModelKeys
from streamtopic.streams import KafkaLog, KafkaOptions, Message, TopicNames
from streamtopic.streams.event_log import partition_of

# As a plain client, Connect's JSON converter and a registry's serializer write the id 7, before and after a new schema.
FORMS = [b"7", b'"7"', b'{"id": 7}', b'\0\0\0\0\1{"id": 7}', b'\0\0\0\0\2{"id": 7}']
MODEL = "forms4"


@pytest.fixture
def site(tmp_path, program, kafka_server, redis_server):
    """Return a function that runs a command under settings, beside a documents topic of four partitions."""
    names = TopicNames(MODEL)
    with KafkaLog(KafkaOptions(kafka_server.servers)) as log:
        log.create(names.documents, 4, names.settings()[names.documents])
        row = json.dumps({"body": "apple banana"}).encode()
        log.append_many(names.documents, [Message(FORMS[2], row, (), partition_of(FORMS[2], 4))])
        log.append_many(names.documents, [Message(FORMS[0], None, (), partition_of(FORMS[0], 4))])
    assert program("keys", "new", "--to", tmp_path / "keys")[0] == 0
    file = tmp_path / "streamtopic.toml"

    def on(*words, partitions):
        file.write_text(
            f'model = "{MODEL}"\nkafka = "{kafka_server.servers}"\nredis_url = "{redis_server.url}"\n'
            f"partitions = {partitions}\n"
            'signing_key = "keys/signing.pem"\npublic_key = "keys/signing.pub"\n'
            'noise_key = "keys/noise.key"\nreceipt_key = "keys/receipt.key"\n'
            '[input]\nformat = "json"\nkey = "id"\ntext = "body"\n'
        )
        status, out, err = program(*words, "--config", file)
        return status, out + err

    return on


@pytest.mark.parametrize("partitions", [1, 4])
def test_every_door_names_the_remedy_and_counts_nothing(site, connection, partitions):
    """Settings that fit the topic, and others, are refused alike: no error sends its reader to the next one."""
    assert len({partition_of(form, 4) for form in FORMS}) > 2
    for words in (["init"], ["doctor"], ["ingest"], ["rebuild", "--yes"]):
        status, said = site(*words, partitions=partitions)
        assert status in {1, 2}, said
        assert "let the connector write the id alone as the key (ExtractField$Key, StringConverter)" in said
        assert "set partitions = 4" not in said
    assert not connection.call("EXISTS", ModelKeys(MODEL).partition(0).meta)
