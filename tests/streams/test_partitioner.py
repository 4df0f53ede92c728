import warnings

from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.streams import FileLog, Message
from streamtopic.streams.event_log import murmur2, partition_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as kafka_murmur2


@given(st.binary(max_size=600))
@settings(max_examples=300)
def test_murmur2_is_kafkas(data):
    """Our hash is the one of kafka-python, which is the Java client's, and so is the partition that follows from it."""
    assert murmur2(data) == kafka_murmur2(data) & 0xFFFFFFFF
    assert partition_of(data, 7) == (kafka_murmur2(data) & 0x7FFFFFFF) % 7


def test_known_values():
    """The values in the Java client's own test (UtilsTest.testMurmur2), read as unsigned numbers."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    known |= {
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    }
    assert {key: murmur2(key) for key in known} == {key: value & 0xFFFFFFFF for key, value in known.items()}


def test_messages_go_to_the_partition_of_their_key(tmp_path):
    """A record without a key goes to the first one; a partition that is named stays."""
    assert partition_of(None, 7) == 0
    messages = [Message(b"doc-7", b"v"), Message(b"doc-7", b"v", partition=2)]
    with FileLog(tmp_path) as log:
        log.create("t", 5)
        places = log.append_many("t", messages)
    assert [partition for partition, _ in places] == [partition_of(b"doc-7", 5), 2]
