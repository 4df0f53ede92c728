"""Records of other programs, read as records of this service.

input_mapping     what the settings say of a foreign record: its format, and the paths of its fields
record_keys       the document id in a record's key, however the key is written
schema_registry   schemas of a Confluent schema registry, and values that Avro wrote
dialects          a foreign record to the same record in the service's own dialect
"""

from streamtopic.sources.dialects import OWN, Dialect, Translated
from streamtopic.sources.input_mapping import OWN_FORMAT, InputMapping
from streamtopic.sources.schema_registry import SchemaRegistry

__all__ = [
    "OWN",
    "OWN_FORMAT",
    "Dialect",
    "InputMapping",
    "SchemaRegistry",
    "Translated",
]
