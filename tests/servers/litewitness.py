"""A real witness: litewitness, and the agent that holds its key."""

import base64
import contextlib
import hashlib
import re
import socket
import sqlite3
import struct
import subprocess
import threading

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import go_programs
from servers.ports import quiet_port
from streamtopic.signed.checkpoints import EMPTY_ROOT
from waiting import until

NAME = "witness.example/real"
_PACKAGE = "filippo.io/torchwood/cmd/litewitness@v0.9.0"
_KIND = b"ssh-ed25519"
_IDENTITIES, _SIGN = 11, 13


def _string(data):
    return struct.pack(">I", len(data)) + data


class Agent:
    """Signs for the witness by the protocol of ssh-agent, so that no test needs OpenSSH. path: of its socket."""

    def __init__(self, path, seed=bytes(range(32))):
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self._blob = _string(_KIND) + _string(self._key.public_key().public_bytes_raw())
        self.fingerprint = "SHA256:" + base64.b64encode(hashlib.sha256(self._blob).digest()).decode().rstrip("=")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        self._socket.close()

    def _serve(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with connection, connection.makefile("rwb") as stream:
            while head := stream.read(4):
                request = stream.read(struct.unpack(">I", head)[0])
                stream.write(_string(self._said(request)))
                stream.flush()

    def _said(self, request):
        if request[0] == _IDENTITIES:
            return b"\x0c" + struct.pack(">I", 1) + _string(self._blob) + _string(b"witness")
        if request[0] == _SIGN:
            start = 1 + 4 + len(self._blob)
            size = struct.unpack(">I", request[start : start + 4])[0]
            signature = self._key.sign(request[start + 4 : start + 4 + size])
            return b"\x0e" + _string(_string(_KIND) + _string(signature))
        return b"\x05"


class LiteWitness:
    """A running litewitness. folder: of its database, with a short path, since a socket lies in it.

    url: where it is asked. key: as its operator publishes it.
    """

    def __init__(self, folder):
        self._program = go_programs.installed(_PACKAGE)
        self._folder = folder
        self._agent = Agent(folder / "agent")
        self._database = folder / "litewitness.db"
        self._port = quiet_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.key = ""
        self._process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        self._agent.close()

    def add_log(self, key):
        """Let it sign checkpoints of a ledger. key: public key of the ledger."""
        # As its program witnessctl does, which needs modules that litewitness itself does not.
        empty = base64.b64encode(EMPTY_ROOT).decode()
        with contextlib.closing(sqlite3.connect(self._database)) as database, database:
            database.execute("INSERT INTO log (origin, tree_size, tree_hash) VALUES (?, 0, ?)", (key.name, empty))
            database.execute("INSERT INTO key (origin, key) VALUES (?, ?)", (key.name, str(key)))

    def start(self):
        """Start it; what it signed before is remembered."""
        log = self._folder / "log"
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [
                    self._program, "-name", NAME, "-db", self._database, "-key", self._agent.fingerprint,
                    "-ssh-agent", self._folder / "agent", "-listen", f"127.0.0.1:{self._port}",
                ],
                stderr=out,
            )  # fmt: skip
        found = until(lambda: re.search(r"vkey=(\S+)", log.read_text()), lambda: f"the witness: {log.read_text()}")
        self.key = found[1].strip('"')
        until(self._listens, "the port of the witness")

    def stop(self):
        """End it."""
        self._process.terminate()
        self._process.wait()

    def _listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
