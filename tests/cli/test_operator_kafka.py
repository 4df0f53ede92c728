"""An operator's commands on a service next to Kafka and Redis: made, examined, checked, rebuilt."""

import itertools
import json

import numpy as np
import pytest

from streamtopic.client import DocumentProducer, Receipts
from streamtopic.local import LocalRedis
from streamtopic.service.app import Service
from streamtopic.settings import load
from streamtopic.streams import TopicNames, open_log

pytestmark = pytest.mark.slow
_numbers = itertools.count()


class Site:
    """One service: its settings file, its commands, and its parts when they are asked to work."""

    def __init__(self, folder, program, kafka_server, redis_server):
        self.model = f"ops{next(_numbers)}"
        self.names = TopicNames(self.model)
        self.servers = kafka_server.servers
        self.folder, self._program = folder, program
        assert program("keys", "new", "--name", f"example.org/{self.model}", "--to", folder / "keys")[0] == 0
        self.config = folder / "streamtopic.toml"
        self.redis_url = redis_server.url
        self.configure(partitions=2)

    def configure(self, partitions):
        self.config.write_text(
            f'model = "{self.model}"\nkafka = "{self.servers}"\nredis_url = "{self.redis_url}"\n'
            f"partitions = {partitions}\ntopics = 4\nmax_df = 1.0\nmax_forget_lag = 0.0\ncapacity.share = 0.05\n"
            'signing_key = "keys/signing.key"\npublic_key = "keys/signing.pub"\n'
            'noise_key = "keys/noise.key"\nreceipt_key = "keys/receipt.key"\n'
        )

    def on(self, command, *arguments, status=0):
        found, out, err = self._program(command, *arguments, "--config", self.config, "--json")
        assert found == status, out + err
        return json.loads(out) if out else err

    def work(self, requested=None):
        """Count all there is, decide, publish: once."""
        with Service(load(config=self.config)) as service:
            ingests = [service.open_ingest(partition) for partition in range(service.settings.partitions)]
            while sum(ingest.lag for ingest in ingests):
                for ingest in ingests:
                    list(ingest.drain())
            step = service.scheduler.step(requested)
            return step, service.publish()

    def digest(self):
        with Service(load(config=self.config)) as service:
            counts = service.reader.counts()
            return counts.restrict(np.arange(len(counts.words))).digest(counts.words)

    def receipts(self):
        with Receipts(self.servers, model=self.model, public_key=self.folder / "keys" / "signing.pub") as receipts:
            return list(receipts)


@pytest.fixture(scope="module")
def kept_redis(tmp_path_factory):
    """A Redis with its append-only file, as the doctor wants it."""
    with LocalRedis(tmp_path_factory.mktemp("redis"), persistent=True) as server:
        yield server


@pytest.fixture
def site(tmp_path, program, kafka_server, kept_redis, sample):
    """A service with 400 documents in two partitions, a version, and two deletions with their receipts."""
    made = Site(tmp_path, program, kafka_server, kept_redis)
    assert {topic["action"] for topic in made.on("init")["topics"]} == {"made"}
    with DocumentProducer(made.servers, model=made.model) as producer:
        producer.add_many((line["id"], line["text"]) for line in map(json.loads, sample[:400]))
        assert made.work()[0].version == 1
        made.requests = [producer.delete("doc-1"), producer.delete("doc-2")]
    assert made.work()[1] == 2
    return made


def test_topics_are_brought_to_the_settings_that_they_need(site):
    """`doctor` says what is wrong with a topic, `init` puts it right, and says what it changed."""
    assert {topic["action"] for topic in site.on("init")["topics"]} == {"found"}
    assert site.on("doctor")["passed"] is True
    log, _ = open_log(site.servers)
    with log:
        log.configure(site.names.ledger, {"cleanup.policy": "compact"})
        log.configure(site.names.documents, {"delete.retention.ms": "1000"})
    found = {f["name"]: f for f in site.on("doctor", status=1)["findings"] if not f["passed"]}
    assert {name: finding["passed"] for name, finding in found.items()} == {
        site.names.ledger: False, site.names.documents: None,
    }  # fmt: skip
    assert all("init" in finding["remedy"] for finding in found.values())
    changed = {topic["topic"]: topic["changed"] for topic in site.on("init")["topics"] if topic["action"] == "changed"}
    assert changed[site.names.ledger] == {"cleanup.policy": ["compact", "delete"]}
    assert set(changed[site.names.documents]) == {"delete.retention.ms"}
    assert site.on("doctor")["passed"] is True


def test_the_service_can_be_checked_from_the_log_up(site, tmp_path):
    """Counts and models agree with Kafka's log, and receipts with what was asked."""
    assert site.on("verify")["passed"] is True
    for request in site.requests:
        assert site.on("receipt", request)["receipts"][0]["found"] is True
    proof = tmp_path / "one.tlog-proof"
    site.on("receipt", site.requests[0], "--salt", site.requests[0].salt, "--proof", proof)
    document = ("--document", "doc-1", "--salt", site.requests[0].salt)
    assert site.on("verify", proof, *document)["passed"] is True
    report = tmp_path / "report.html"
    written = site.on("export", "--evidence", "--verify", "--to", report)
    assert (written["version"], written["passed"], written["complete"]) == (2, True, True)
    assert site.on("verify", report)["passed"] is True
    assert site.on("unlearn")["running"] is True
    assert site.on("status")["capacity_rule"] == "share"
    assert "schedule" in site.on("unlearn", "--wait", 0.3, status=1)
    assert site.work()[0].version == 3
