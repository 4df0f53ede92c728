"""What deletions leave behind on a cluster: every master's file is written anew, not only one."""

import pytest

from embedded_service import embedded, two_topics
from servers.redis_cluster import LocalRedisCluster
from streamtopic.documents.corpus import Document
from streamtopic.service.publish import erasure
from streamtopic.state.deletions import ResidueState
from waiting import until

RARE = "xylograph"


def holding(cluster):
    """Ports of the masters with a file that holds the rare word."""
    found = (node for node in cluster.masters() for path in node.folder.iterdir() if RARE.encode() in path.read_bytes())
    return {node.port for node in found}


@pytest.mark.slow
def test_nothing_is_left_in_the_file_of_any_master(tmp_path, monkeypatch):
    """A rare word of documents in four partitions is in the files of masters, and in none once the ledger says so."""
    with LocalRedisCluster(replicas=0, options={"rdbcompression": "no"}) as cluster:
        plain = {"partitions": 4, "topics": 2, "min_df": 1, "residue_max_age": 0.0, "backups_kept": 0.0}
        with embedded(tmp_path, redis_url=cluster.url, **plain) as service:
            monkeypatch.setattr(erasure, "_GRACE_SECONDS", 1.0)
            service.add(two_topics(0, 60))
            service.add([Document(f"r{n}", f"{RARE} apple banana iron", {}) for n in range(8)])
            service.settle()
            assert len(holding(cluster)) > 1, "one master holds it: nothing is shown"
            service.delete([f"r{n}" for n in range(8)])
            service.settle()
            ends = {p: meta.removed for p, meta in service.reader.positions().items() if meta.removals}
            state = ResidueState(service.connection, service.settings.model)

            def gone():
                service.settle()
                now = state.read()
                return all(now.of(partition).done >= end for partition, end in ends.items())

            until(gone, state.read, 0.1)
            assert holding(cluster) == set()
