"""Keys fit a Redis Cluster: whatever one script or transaction touches lies in one slot."""

import socket
import subprocess
import time

import pytest

from streamtopic.corpus import Document
from streamtopic.errors import StreamtopicError
from streamtopic.local.local_redis import find_server
from streamtopic.service.app import Service
from streamtopic.settings import Settings
from streamtopic.state import Connection

WORDS = ["rose", "tulip", "soil", "seed", "oven", "flour", "butter", "knead", "anchor", "vessel", "tide", "crew"]


def free_port():
    """A port that is free, as is the one ten thousand above it, on which cluster nodes speak to each other."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            if port < 55_000:
                try:
                    other.bind(("127.0.0.1", port + 10_000))
                except OSError:
                    continue
                return port


@pytest.fixture
def node(tmp_path):
    """One node that owns every slot; it refuses commands that span two."""
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--dir", str(tmp_path)]
    options += ["--save", "", "--appendonly", "no", "--daemonize", "no"]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen([str(find_server()), *options], stdout=log) as server:
        url = f"redis://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                try:
                    with Connection(url) as connection:
                        connection.call("CLUSTER ADDSLOTS", *range(16384))
                        while connection.call("CLUSTER INFO")["cluster_state"] != "ok":
                            time.sleep(0.05)
                    break
                except StreamtopicError:  # it is still starting
                    time.sleep(0.05)
            yield url
        finally:
            server.kill()


def test_the_whole_flow_stays_within_slots(node, tmp_path):
    """Ingest of two partitions, compaction, both kinds of version, receipts: no command crosses a slot."""
    settings = Settings(
        dir=tmp_path / "instance",
        redis_url=node,
        partitions=2,
        topics=3,
        max_df=1.0,
        max_forget_lag=0.0,
        capacity="fixed",
        capacity_fixed=50,
    )
    texts = [" ".join([*(WORDS[4 * (k % 3) : 4 * (k % 3) + 4] * 4), WORDS[k % 12]]) for k in range(90)]
    with Service(settings) as service:
        service.add([Document(f"d{k}", text, {}) for k, text in enumerate(texts)])
        service.settle()
        service.delete(["d1", "d2"])
        service.settle()
        service.state.request("retrain")
        service.settle()
        assert [v["kind"] for v in service.versions()][-1] == "retrain"
        assert len(service.receipts()) == 2
        assert service.verify().passed
