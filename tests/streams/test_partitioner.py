import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.errors import UsageError
from streamtopic.streams.partitioner import murmur2, partition_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as kafka_murmur2


@given(st.binary(max_size=600))
@settings(max_examples=300, deadline=None)
def test_murmur2_is_kafkas(data):
    """Our hash is the one of kafka-python, which is the Java client's."""
    assert murmur2(data) == kafka_murmur2(data) & 0xFFFFFFFF


def test_known_values():
    """The values in the Java client's own test (UtilsTest.testMurmur2), read as unsigned numbers."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    known |= {
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    }
    assert {key: murmur2(key) for key in known} == {key: value & 0xFFFFFFFF for key, value in known.items()}


def test_no_partition_no_record():
    """A topic without partitions cannot take a record; a record without a key goes to the first partition."""
    assert partition_of(None, 5) == 0
    with pytest.raises(UsageError):
        partition_of(b"k", 0)
