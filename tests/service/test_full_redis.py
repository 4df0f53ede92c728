"""Redis at its limit of memory: processes wait, and go on by themselves."""

import json
import os
import signal
import subprocess
import sys

from embedded_service import Service
from streamtopic.documents.corpus import Document
from streamtopic.documents.events import encode_delete
from streamtopic.local import LocalRedis
from streamtopic.settings import Settings
from streamtopic.state import Connection
from streamtopic.streams import FileLog
from waiting import PATIENCE


def test_a_running_service_waits_for_room_in_redis(tmp_path):
    """`run` at `maxmemory` says so and goes on by itself; a deletion that came meanwhile has its receipt then."""
    with LocalRedis() as redis, Connection(redis.url) as connection:
        chosen = {"topics": 2, "min_df": 1, "max_df": 1.0, "max_forget_lag": 0.0}
        settings = Settings(dir=tmp_path / "full", redis_url=redis.url, **chosen)
        texts = ("rose tulip soil seed bloom", "oven flour butter knead dough")
        with Service(settings) as service:
            service.add(Document(f"d{n}", texts[n % 2]) for n in range(20))
            service.settle()
        options = [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "streamtopic", "run", "--dir", str(settings.dir), *options]
        environment = os.environ | {"STREAMTOPIC_REDIS_URL": redis.url}
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        service = subprocess.Popen(command, text=True, env=environment, **piped)
        try:
            assert _line(service, "decided")
            connection.call("CONFIG", "SET", "maxmemory", "1")
            with FileLog(settings.dir / "log") as log:
                log.append_many("default.documents", [encode_delete("d7", "request")])
                assert "out of memory" in _line(service, "waiting")
                connection.call("CONFIG", "SET", "maxmemory", "0")
                published = json.loads(_line(service, "published"))
                assert (published["versions"], published["receipts"]) == ([2], 1)
        finally:
            service.send_signal(signal.SIGTERM)
            service.communicate(timeout=PATIENCE)
        assert service.returncode == 0


def _line(service, event):
    """The next line of a process that tells of an event; "" if the process has ended."""
    return next((line for line in service.stdout if f'"event": "{event}"' in line), "")
