"""Debezium to a receipt: changes of a table as Debezium sends them, read by settings alone, and a receipt.

pip install '.[demo,kafka-local]' && python docs/examples/debezium_to_receipt.py
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from subprocess import DEVNULL, Popen, run

from kafka import KafkaProducer

from streamtopic.client import ModelSubscriber, Receipts
from streamtopic.local import LocalKafka

TITLES = ("rose tulip soil seed garden", "oven flour butter dough bread", "mast tide crew rope harbour")
SALT = "5f1d3c0a9be24c7788d0a4c6e2b1f093"
SETTINGS = """
model = "articles"
kafka = "SERVERS"
topics = 3
max_forget_lag = 0.0  # each deletion gets a version of its own at once
input = {format = "debezium", text = ["title", "body"]}
"""


def key(number: int) -> bytes:
    """The key of a row, as Kafka Connect writes it with `ExtractField$Key` and its converter of strings."""
    return str(number).encode()


def change(op: str, number: int) -> bytes:
    """A change of a row, as Debezium captures it: `c` where it was inserted, `d` where it was deleted."""
    row = {"title": TITLES[number % 3], "body": TITLES[(number + 1) % 3].split()[number % 5]}
    return json.dumps({"schema": {}, "payload": {"after": None if op == "d" else row, "op": op}}).encode()


def stream(servers: str, public_key: Path) -> None:
    """Insert rows, delete a row; wait for the version without it, and for the receipt."""
    producer = KafkaProducer(bootstrap_servers=servers)
    for number in range(90):
        producer.send("articles.documents", key=key(number), value=change("c", number))
    with ModelSubscriber(servers, model="articles", public_key=public_key, idle_seconds=120) as subscriber:
        print("rows:", next(release.envelope.m for release in subscriber if release.envelope.m == 90))
        asked = [("request", b"erase-7"), ("salt", SALT.encode())]  # a transform of the connector adds headers
        producer.send("articles.documents", key=key(7), value=change("d", 7), headers=asked)
        producer.close()
        print("rows:", next(release.envelope.m for release in subscriber if release.envelope.m == 89))
    with Receipts(servers, model="articles", public_key=public_key) as receipts:
        while not (found := receipts.find("erase-7", salt=SALT)):
            time.sleep(0.2)
    print(f"receipt: found {found[0].found}, about row 7 {found[0].is_about('7', SALT)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, LocalKafka() as kafka:
        (Path(folder) / "streamtopic.toml").write_text(SETTINGS.replace("SERVERS", kafka.servers))
        program = [sys.executable, "-m", "streamtopic"]
        run([*program, "init", "--dir", folder], check=True)
        with Popen([*program, "run", "--set", "max_df=1.0", "--dir", folder], stdout=DEVNULL) as service:
            try:
                stream(kafka.servers, Path(folder) / "keys" / "signing.pub")
            finally:
                service.terminate()
