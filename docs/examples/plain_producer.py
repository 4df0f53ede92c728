"""A producer that knows Kafka and JSON and nothing of streamtopic: pip install kafka-python.

python docs/examples/plain_producer.py localhost:9092 news
"""

import hashlib
import hmac
import json
import secrets
import sys

from kafka import KafkaProducer

DOCUMENTS = {
    "garden/1": {"text": "Roses want soil, water and patience."},
    "kitchen/1": {"text": "Bread wants flour, water and salt.", "labels": {"room": "kitchen"}},
    "harbour/1": {"counts": {"tide": 2, "boat": 1, "rope": 1}},
}


def main(servers: str, model: str) -> None:
    """Add three documents and delete one; print where they are, and how the receipt will be found."""
    topic = f"{model}.documents"
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    for name, content in DOCUMENTS.items():
        value = json.dumps({"op": "add", **content}).encode()
        # The key alone chooses the partition, by murmur2: an add and its delete must meet in one partition.
        record = producer.send(topic, key=name.encode(), value=value).get(30)
        print(f"add {name}: partition {record.partition}, offset {record.offset}")

    # A null value deletes. Whoever keeps request and salt can find the receipt; nobody else can.
    request, salt = f"request-{secrets.token_hex(8)}", secrets.token_hex(16)
    headers = [("request", request.encode()), ("salt", salt.encode())]
    record = producer.send(topic, key=b"garden/1", value=None, headers=headers).get(30)
    producer.close()
    print(f"delete garden/1: partition {record.partition}, offset {record.offset}")
    print(f"request {request}, salt {salt}")
    digest = hmac.new(salt.encode(), b"streamtopic request\0" + request.encode(), hashlib.sha256).hexdigest()
    print(f"the receipt will show the digest {digest}")


if __name__ == "__main__":
    main(*sys.argv[1:])
