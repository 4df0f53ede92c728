"""Witnesses: others who sign a checkpoint of the ledger once they have seen that it only grew.

Which witnesses there are, and how many must sign, is in a policy file (c2sp.org/tlog-policy). They are asked by
HTTP (c2sp.org/tlog-witness), and sign as c2sp.org/tlog-cosignature says.
"""

from __future__ import annotations

import http.client
import logging
import queue
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from streamtopic.console import printable
from streamtopic.errors import InvalidRelease, SettingsError, StateError
from streamtopic.signed import COSIGNATURE, Checkpoint, PublicKey, cosigned
from streamtopic.signed.checkpoints import text_of
from streamtopic.signed.signing_keys import read_note

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Quorum", "WitnessPolicy", "Witnesses", "read_policy"]

logger = logging.getLogger("streamtopic.service")

_PATIENCE = 3.0
# A witness that failed is asked again after so many seconds, unless pages wait for it: else each page waits in vain.
_PAUSE = 30.0
# The answer is some lines of signatures, or a number.
_ANSWER_BYTES = 64 << 10
# A size that is wrong is corrected by the witness itself; one that is wrong again and again is no answer.
_TRIES = 3
_NONE = "none"
_SPACES = re.compile("[ \t]+")
_UNUSABLE = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Quorum:
    """A rule by which enough witnesses have signed: `least` of its members.

    members: names of witnesses, and further rules.
    """

    least: int
    members: tuple[str | Quorum, ...] = ()

    def met_by(self, names: Collection[str]) -> bool:
        """Whether the witnesses of these names are enough."""
        met = [member in names if isinstance(member, str) else member.met_by(names) for member in self.members]
        return sum(met) >= self.least


@dataclass(frozen=True, slots=True)
class WitnessPolicy:
    """What a policy file says.

    witnesses: name in the file to the key.
    addresses: name to URL, of those that can be asked.
    quorum: which of them are enough.
    """

    witnesses: Mapping[str, PublicKey]
    addresses: Mapping[str, str]
    quorum: Quorum


def read_policy(data: bytes, source: str) -> WitnessPolicy:
    """Return the policy in the bytes of a file. Raises SettingsError with the line for any other bytes.

    source: names the file in errors. Logs that it names are checked and passed over.
    """
    reading = _Reading()
    for number, raw in enumerate(data.split(b"\n"), 1):
        try:
            reading.take(raw)
        except SettingsError as error:
            raise SettingsError(f"witnesses {source}, line {number}: {error}") from None
    if reading.quorum is None:
        raise SettingsError(f"witnesses {source}: it has no line of the quorum; write `quorum none` to ask for none")
    return WitnessPolicy(reading.witnesses, reading.addresses, reading.quorum)


@dataclass(slots=True)
class _Reading:
    """A policy file as far as it was read.

    names: what a rule means by the name of a witness or of another rule.
    taken: names that are members of a group.
    keys: of witnesses and logs.
    """

    witnesses: dict[str, PublicKey] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    quorum: Quorum | None = None
    names: dict[str, Quorum] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    keys: set[bytes] = field(default_factory=set)

    def take(self, raw: bytes) -> None:
        """Read the next line. Raises SettingsError."""
        if _UNUSABLE.search(raw):
            raise SettingsError("it holds a control character: write plain text, and lines that end in a newline only")
        # Names are compared byte by byte, whatever they mean.
        line = raw.decode(errors="surrogateescape").strip(" \t")
        if not line or line.startswith("#"):
            return
        match _SPACES.split(line):
            case ["log", key, *url] if len(url) <= 1:
                self._once(PublicKey.parse(key).raw)
            case ["witness", name, key, *url] if len(url) <= 1:
                self._witness(name, key, *url)
            case ["group", name, least, *members] if members:
                self._define(name, self._group(least, members))
            case ["quorum", name] if self.quorum is None:
                self.quorum = Quorum(0) if name == _NONE else self._known(name)
            case [word, *_]:
                raise SettingsError(
                    f"{printable(word[:40])!r} does not begin a line here: write `witness NAME KEY URL`, `group NAME "
                    "any|all|NUMBER NAME...`, and one line `quorum NAME`"
                )

    def _witness(self, name: str, key: str, url: str = "") -> None:
        try:
            witness = PublicKey.parse(key, COSIGNATURE)
        except SettingsError:
            raise SettingsError(
                f"the key of witness {printable(name)!r} is not one that cosigns with Ed25519: copy the line that its "
                "operator publishes"
            ) from None
        self._once(witness.raw)
        if url:
            self.addresses[name] = _address(url)
        self._define(name, Quorum(1, (name,)))
        self.witnesses[name] = witness

    def _once(self, key: bytes) -> None:
        if key in self.keys:
            raise SettingsError("its key is in the file already: name each key once")
        self.keys.add(key)

    def _define(self, name: str, rule: Quorum) -> None:
        if name in self.names or name == _NONE:
            raise SettingsError(f"name {printable(name)!r} has a meaning already: choose another one")
        self.names[name] = rule

    def _group(self, least: str, members: Sequence[str]) -> Quorum:
        for name in members:
            if name in self.taken:
                raise SettingsError(f"{printable(name)!r} is in a group already: a witness counts once")
            self.taken.add(name)
        numbers = {"any": "1", "all": str(len(members))}
        text = numbers.get(least, least)
        if not re.fullmatch("[1-9][0-9]{0,5}", text) or int(text) > len(members):
            raise SettingsError(f"of {len(members)} members at least {printable(least)!r} cannot be asked for")
        return Quorum(int(text), tuple(map(self._known, members)))

    def _known(self, name: str) -> Quorum:
        if name not in self.names:
            raise SettingsError(f"{printable(name)!r} is not defined above: write its line before this one")
        return self.names[name]


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or not url.isascii() or any(letter in url for letter in "?#@"):
        raise SettingsError(f"{printable(url[:80])!r} is not the address of a witness: write https://...")
    return url.rstrip("/")


@dataclass(slots=True, eq=False)
class _Asked:
    """What is known of one witness.

    size: entries of the checkpoint that it signed last, 0 before the first.
    busy: whether a request is under way, also one that nobody waits for any more.
    failed: when it failed last, by the clock; None if it signed last.
    """

    size: int = 0
    busy: bool = False
    failed: float | None = None


@dataclass(frozen=True, slots=True)
class _Page:
    """A checkpoint while witnesses are asked for it.

    note: signed by the service.
    size: number of entries.
    consistency: two sizes to the proof between them; read from Redis and the log, so for one thread alone.
    answers: name of a witness, status and text.
    """

    note: str
    size: int
    consistency: Callable[[int, int], list[bytes]]
    answers: queue.SimpleQueue[tuple[str, int, str]] = field(default_factory=queue.SimpleQueue)


class Witnesses:
    """Asks all witnesses of a policy at once.

    required: whether pages wait for the quorum. Without it, whatever a witness does holds nothing up for longer than
        `seconds`.
    quorum: which witnesses are enough.
    clock: seconds, for waits.
    """

    def __init__(
        self,
        policy: WitnessPolicy,
        *,
        required: bool = False,
        seconds: float = _PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.quorum = policy.quorum
        self.required = required
        self._keys = policy.witnesses
        self._addresses = policy.addresses
        self._seconds = seconds
        self._late = f"it has not answered within {seconds:g} s"
        self._clock = clock
        self._asked = {name: _Asked() for name in policy.addresses}

    @classmethod
    def load(cls, path: Path, *, required: bool = False) -> Witnesses:
        """Return the witnesses of a policy file. Raises SettingsError for a file that names none who can be asked."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise SettingsError(f"witnesses {path}: {error.strerror}; name the file of your witnesses") from error
        policy = read_policy(data, str(path))
        if not policy.addresses:
            raise SettingsError(f"witnesses {path}: it names no witness with an address: add its URL to its line")
        if required and not policy.quorum.met_by(policy.addresses):
            raise SettingsError(
                f"witnesses {path}: those with an address are too few for its quorum: pages would wait for ever"
            )
        return cls(policy, required=required)

    def signers(self, checkpoint: str) -> frozenset[str]:
        """Return the names, as the file has them, of the witnesses who have signed a checkpoint. checkpoint: a note."""
        return frozenset(name for name, key in self._keys.items() if cosigned(checkpoint, [key]))

    def cosign(self, checkpoint: str, consistency: Callable[[int, int], list[bytes]]) -> str:
        """Return the checkpoint with the signatures that came in time.

        checkpoint: a note, signed by the service. consistency: two sizes to the proof between them.

        Raises StateError if the quorum is required and not met: the page waits, and witnesses are asked again.
        """
        page = _Page(checkpoint, Checkpoint.parse(read_note(checkpoint).text).size, consistency)
        deadline = self._clock() + self._seconds
        waiting = dict.fromkeys(self._due(), _TRIES)
        for name in waiting:
            self._ask(name, page)
        lines = dict[str, str]()
        while waiting and not self._enough(lines):
            try:
                name, status, text = page.answers.get(timeout=max(deadline - self._clock(), 0))
            except queue.Empty:
                break
            waiting[name] -= 1
            try:
                line = self._line(name, page, status, text, last=not waiting[name])
            except InvalidRelease as error:
                self._fail(name, str(error))
                del waiting[name]
                continue
            if line:
                lines[name] = line
                self._signed(name, page.size)
                del waiting[name]
            else:
                self._ask(name, page)
        for name in () if self._enough(lines) else waiting:
            self._fail(name, self._late)
        if self.required and not self.quorum.met_by(lines):
            raise StateError(
                f"a page of the ledger waits for its witnesses: {', '.join(sorted(lines)) or 'nobody'} of "
                f"{', '.join(sorted(self._keys))} signed, which is not the quorum; the log says why"
            )
        return checkpoint + "".join(lines[name] for name in sorted(lines))

    def _enough(self, names: Collection[str]) -> bool:
        """Whether nobody has to be waited for. If no quorum is asked for, everybody is."""
        return self.quorum.least > 0 and self.quorum.met_by(names)

    def _due(self) -> Iterable[str]:
        """Return the names of those who are asked now."""
        now = self._clock()
        for name, asked in self._asked.items():
            paused = asked.failed is not None and now < asked.failed + _PAUSE
            if not asked.busy and (self.required or not paused):
                yield name

    def _ask(self, name: str, page: _Page) -> None:
        """Send a request to a witness, in a thread of its own."""
        asked = self._asked[name]
        path = page.consistency(asked.size, page.size) if 0 < asked.size < page.size else []
        body = "\n".join([f"old {asked.size}", *map(text_of, path), "", page.note])
        asked.busy = True
        # A daemon, since a witness that answers a byte a minute must not keep the process from ending.
        threading.Thread(target=self._post, args=(name, body, page), name=f"witness {name}", daemon=True).start()

    def _post(self, name: str, body: str, page: _Page) -> None:
        """Answer with the name of a witness, status and text; the status is 0 if there is no answer."""
        try:
            status, text = _posted(self._addresses[name], body, self._seconds)
        except TimeoutError:
            status, text = 0, self._late
        except (OSError, http.client.HTTPException, ValueError) as error:
            status, text = 0, f"{type(error).__name__}: {error}"
        self._asked[name].busy = False
        page.answers.put((name, status, text))

    def _line(self, name: str, page: _Page, status: int, text: str, *, last: bool) -> str:
        """Return the line by which a witness signs, "" if it is to be asked again with another size.

        last: whether it is not asked again. Raises InvalidRelease with what it answers instead.
        """
        if status == http.client.OK:
            return self._own(name, page.note, text)
        if not status:
            raise InvalidRelease(text)
        if status != http.client.CONFLICT or not re.fullmatch(r"(0|[1-9][0-9]{0,17})\n?", text):
            raise InvalidRelease(f"it answered {status}: {printable(' '.join(text[:200].split()))}")
        if int(text) > page.size:
            raise InvalidRelease(
                f"it has signed this ledger with {int(text)} entries, and it has {page.size} here: find out "
                "whether its topic has lost records"
            )
        if last:
            raise InvalidRelease("it does not say which entries it has seen")
        self._asked[name].size = int(text)
        return ""

    def _own(self, name: str, checkpoint: str, text: str) -> str:
        """Return the line of an answer that is the signature of its witness. Raises InvalidRelease without one."""
        for line in text.splitlines(keepends=True):
            with suppress(InvalidRelease):
                if cosigned(checkpoint + line, [self._keys[name]]):
                    return line
        raise InvalidRelease("its answer holds no signature that its key has made")

    def _signed(self, name: str, size: int) -> None:
        """Note that a witness has signed so many entries; say so if it had failed."""
        asked = self._asked[name]
        asked.size = size
        if asked.failed is not None:
            extra = {"event": "witness_signs", "witness": name}
            logger.info("witness %s signs again", printable(name), extra=extra)
        asked.failed = None

    def _fail(self, name: str, problem: str) -> None:
        """Note that a witness did not sign; say so the first time."""
        asked = self._asked[name]
        if asked.failed is None:
            extra = {"event": "witness_failed", "witness": name}
            logger.warning("witness %s does not sign: %s", printable(name), problem, extra=extra)
        asked.failed = self._clock()


def _posted(address: str, body: str, seconds: float) -> tuple[int, str]:
    """Return status and text of the answer to a request. Raises OSError, HTTPException, ValueError."""
    parts = urlsplit(address)
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=seconds)
    try:
        headers = {"Content-Type": "text/plain; charset=utf-8", "Connection": "close"}
        connection.request("POST", f"{parts.path}/add-checkpoint", body.encode(), headers)
        response = connection.getresponse()
        return response.status, response.read(_ANSWER_BYTES).decode()
    finally:
        connection.close()
