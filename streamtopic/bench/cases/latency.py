"""From a delete to the version without the document, and to its receipt: real Kafka and Redis, parts as processes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure
from streamtopic.errors import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.client import Deletion, ModelSubscriber, Receipts
    from streamtopic.signed import Release

__all__ = ["CASES"]

DOCUMENTS = 10_000
WORDS = 5_000
TOPICS = 20
TOKENS = 100
DELETIONS = 100
PATIENCE = 120.0


def deletions() -> list[Figure]:
    """Delete one document after the other, each once version and receipt of the last one have arrived."""
    from streamtopic.client import DocumentProducer, ModelSubscriber, Receipts
    from streamtopic.local import LocalKafka, LocalRedis

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(LocalKafka())
        redis = stack.enter_context(LocalRedis(folder / "redis"))
        config = _configure(folder, kafka.servers, redis.url)
        for part in ("ingest", "schedule"):
            stack.enter_context(_process(part, config))
        producer = stack.enter_context(DocumentProducer(kafka.servers, model="bench"))
        key = folder / "keys" / "signing.pub"
        subscriber = stack.enter_context(
            ModelSubscriber(kafka.servers, model="bench", public_key=key, idle_seconds=PATIENCE)
        )
        receipts = stack.enter_context(Receipts(kafka.servers, model="bench", public_key=key))
        start = time.perf_counter()
        producer.add_many(_documents())
        _await(subscriber, DOCUMENTS)
        first = time.perf_counter() - start
        waits, proved, kinds = [], [], []
        for k in range(DELETIONS):
            begin = time.perf_counter()
            request = producer.delete(str(k))
            kinds.append(_await(subscriber, DOCUMENTS - k - 1).envelope.kind)
            waits.append(time.perf_counter() - begin)
            _await_proof(receipts, request, str(k), key)
            proved.append(time.perf_counter() - begin)
        stages = _stages(folder / "schedule.log")
    waits.sort()
    proved.sort()
    return [
        Figure("first version of all documents", first, "s"),
        Figure("deletions", DELETIONS, ""),
        Figure("by update", kinds.count("unlearn"), "versions"),
        Figure("by retrain", kinds.count("retrain"), "versions"),
        Figure("to the version, p50", waits[len(waits) // 2], "s", "0.5"),
        Figure("to the version, p99", waits[-1 - len(waits) // 100], "s"),
        Figure("to the receipt with its proof, p50", proved[len(proved) // 2], "s", "0.7"),
        Figure("to the receipt with its proof, p99", proved[-1 - len(proved) // 100], "s"),
        *(Figure(f"of it {name}, p50", seconds, "s") for name, seconds in stages.items()),
    ]


def _stages(log: Path) -> dict[str, float]:
    """Return the median seconds of each stage of the scheduler's versions."""
    found: dict[str, list[float]] = {}
    for line in log.read_text("utf-8").splitlines():
        for name, seconds in (
            json.loads(line).get("seconds", {}).items() if line.startswith('{"event": "staged"') else ()
        ):
            found.setdefault(name, []).append(seconds)
    return {name: sorted(times)[len(times) // 2] for name, times in found.items()}


def _configure(folder: Path, servers: str, redis: str) -> Path:
    from streamtopic.cli import main

    lines = [
        'model = "bench"',
        f'kafka = "{servers}"',
        f'redis_url = "{redis}"',
        f"topics = {TOPICS}",
        "max_forget_lag = 0.0",
        "update_after = 0.0001",  # so that the first documents lead to a version of all
        'keys = "keys"',
    ]
    config = folder / "streamtopic.toml"
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    new = ["keys", "new", "--name", "streamtopic/bench", "--to", str(folder / "keys"), "--json"]
    for arguments in (new, ["init", "--config", str(config)]):
        if main(arguments) != 0:
            raise CheckFailed(f"`streamtopic {arguments[0]}` failed")
    return config


@contextmanager
def _process(part: str, config: Path) -> Iterator[None]:
    """Run one part of the service; SIGTERM ends it."""
    command = [sys.executable, "-P", "-m", "streamtopic", part, "--config", str(config), "--json"]
    with config.with_name(f"{part}.log").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)  # noqa: S603  this program
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def _documents() -> Iterator[tuple[str, str]]:
    from streamtopic.bench.synthetic import planted

    batch = planted(DOCUMENTS, WORDS, TOPICS, TOKENS)
    for k in range(DOCUMENTS):
        row = slice(int(batch.indptr[k]), int(batch.indptr[k + 1]))
        pairs = zip(batch.words[row].tolist(), batch.counts[row].tolist(), strict=True)
        yield str(k), " ".join(f"w{word:06d}" for word, number in pairs for _ in range(number))


def _await(subscriber: ModelSubscriber, documents: int) -> Release:
    """Return the first version that holds exactly so many documents."""
    # As users receive versions: a subscriber that asks all the time would take a processor from the service.
    for release in subscriber:
        if release.envelope.m == documents:
            return release
    raise CheckFailed(f"no version of {documents} documents arrived within {PATIENCE:.0f} s")


def _await_proof(receipts: Receipts, request: Deletion, document: str, key: Path) -> None:
    """Wait for the receipt of a deletion, and verify its proof as its requester does."""
    from streamtopic.client import verify_receipt

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = receipts.find(request)
        if found:
            verify_receipt(receipts.proof(found[0]), key, document=document, salt=request.salt)
            return
        time.sleep(0.005)
    raise CheckFailed(f"no receipt of document {document} arrived within {PATIENCE:.0f} s")


CASES = {"deletions": deletions}
