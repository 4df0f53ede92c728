"""Keys of one document that differ in their bytes belong to several partitions: such topics are refused."""

import contextlib
import json

import pytest
from kafka import KafkaAdminClient

from streamtopic.errors import StateMismatch, UsageError
from streamtopic.service.app import Service
from streamtopic.service.instance import provision
from streamtopic.service.upkeep.rebuild_state import rebuild
from streamtopic.settings import load
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.streams import KafkaLog, KafkaOptions, Message, TopicNames
from streamtopic.streams.event_log import partition_of

# As a plain client, Connect's JSON converter and a registry's serializer write the id 7, before and after a new schema.
FORMS = [b"7", b'"7"', b'{"id": 7}', b'\0\0\0\0\1{"id": 7}', b'\0\0\0\0\2{"id": 7}']
MODEL = "forms4"
KEYS = {"signing_key": "signing.pem", "noise_key": "noise.key", "receipt_key": "receipt.key"}


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


def test_a_topic_that_grew_beside_a_model_is_not_counted_on(tmp_path, program, kafka_server, redis_server):
    """A delete under another key may lie where nobody reads: no process goes on, and no receipt is made."""
    model = "forms1to4"
    names = TopicNames(model)
    assert program("keys", "new", "--to", tmp_path / "keys")[0] == 0
    keys = {name: tmp_path / "keys" / file for name, file in KEYS.items()}
    given = {"model": model, "kafka": kafka_server.servers, "redis_url": redis_server.url, "partitions": 1, **keys}
    given["input"] = '{"format": "json", "key": "id", "text": "body"}'
    later = next(form for form in FORMS if partition_of(form, 4))
    with Service(load(given)) as service:
        provision(service.log, service.names, 1, service.topic_settings, many_forms=True)
        service.send([Message(FORMS[2], json.dumps({"body": "apple banana"}).encode())])
        assert list(service.open_ingest(0).drain())
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka_server.servers)) as admin:
            admin.create_partitions({names.documents: 4})
    with Service(load(given)) as service:
        service.log.append_many(names.documents, [Message(later, None, (), partition_of(later, 4))])
        with pytest.raises(StateMismatch, match="let the connector write the id alone"):
            service.open_ingest(0)
        with pytest.raises(UsageError, match="let the connector write the id alone"):
            rebuild(service, lambda *_: None)
        assert service.reader.positions()[0].documents == 1
        assert service.issue_receipts() == 0
