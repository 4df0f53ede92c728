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
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from streamtopic.console import printable
from streamtopic.errors import InvalidRelease, SettingsError, StateError
from streamtopic.signed import COSIGNATURE, Checkpoint, PublicKey, cosigned
from streamtopic.signed.checkpoints import text_of
from streamtopic.signed.signing_keys import read_note

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

__all__ = ["Quorum", "WitnessPolicy", "Witnesses", "read_policy"]

logger = logging.getLogger("streamtopic.service")

_PATIENCE = 3.0
# A witness that failed is asked again after so many seconds, unless pages wait for it: else each page waits in vain.
_PAUSE = 30.0
# The answer is some lines of signatures, or a number.
_ANSWER_BYTES = 64 << 10
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


@dataclass(slots=True)
class WitnessPolicy:
    """What a policy file says.

    witnesses: name in the file to the key.
    addresses: name to URL, of those that can be asked.
    quorum: which of them are enough; None while its line was not read.
    rules: what a rule means by a name; those in `grouped` are members of a group.
    """

    witnesses: dict[str, PublicKey] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    quorum: Quorum | None = None
    rules: dict[str, Quorum] = field(default_factory=lambda: {"none": Quorum(0)})
    grouped: set[str] = field(default_factory=lambda: {"none"})

    def take(self, raw: bytes) -> None:
        """Read the next line. Raises SettingsError."""
        if _UNUSABLE.search(raw):
            raise SettingsError("it holds a control character: write plain text, and lines that end in a newline only")
        # Names are compared byte by byte, whatever they mean.
        line = raw.decode(errors="surrogateescape").strip(" \t")
        match [] if line.startswith("#") else re.findall("[^ \t]+", line):
            case []:
                pass
            case ["log", key] | ["log", key, _]:
                PublicKey.parse(key)
            case ["witness", name, key, *url] if len(url) <= 1:
                self._define(name, Quorum(1, (name,)))
                witness = PublicKey.parse(key, COSIGNATURE)
                if witness.raw in {known.raw for known in self.witnesses.values()}:
                    raise SettingsError("its key is in the file already: a witness counts once")
                self.witnesses[name] = witness
                if url:
                    self.addresses[name] = _address(url[0])
            case ["group", name, least, *members] if members:
                self._define(name, self._group(least, members))
            case ["quorum", name] if self.quorum is None:
                self.quorum = self._known(name)
            case [word, *_]:
                raise SettingsError(
                    f"{printable(word[:40])!r} does not begin a line here: write `witness NAME KEY URL`, `group NAME "
                    "any|all|NUMBER NAME...`, and one line `quorum NAME`"
                )

    def _define(self, name: str, rule: Quorum) -> None:
        if name in self.rules:
            raise SettingsError(f"name {printable(name)!r} has a meaning already: choose another one")
        self.rules[name] = rule

    def _group(self, least: str, members: Sequence[str]) -> Quorum:
        rules = tuple(map(self._known, members))
        if self.grouped & {*members} or len({*members}) < len(members):
            raise SettingsError("one of its members is in a group already: a witness counts once")
        self.grouped.update(members)
        number = {"any": "1", "all": str(len(members))}.get(least, least)
        if not re.fullmatch("[1-9][0-9]{0,5}", number) or int(number) > len(members):
            raise SettingsError(f"of {len(members)} members at least {printable(least)!r} cannot be asked for")
        return Quorum(int(number), rules)

    def _known(self, name: str) -> Quorum:
        if name not in self.rules:
            raise SettingsError(f"{printable(name)!r} is not defined above: write its line before this one")
        return self.rules[name]


def read_policy(data: bytes, source: str) -> WitnessPolicy:
    """Return the policy in the bytes of a file. Raises SettingsError with the line for any other bytes.

    source: names the file in errors. Logs that it names are checked and passed over.
    """
    policy = WitnessPolicy()
    for number, raw in enumerate(data.split(b"\n"), 1):
        try:
            policy.take(raw)
        except SettingsError as error:
            raise SettingsError(f"witnesses {source}, line {number}: {error}") from None
    if policy.quorum is None:
        raise SettingsError(f"witnesses {source}: it has no line of the quorum; write `quorum none` to ask for none")
    return policy


def _address(url: str) -> str:
    with suppress(ValueError):
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        if usable and url.isascii() and not re.search("[?#@]", url):
            return url.rstrip("/")
    raise SettingsError(f"{printable(url[:80])!r} is not the address of a witness: write https://...")


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
        self.quorum = policy.quorum or Quorum(0)
        self.required = required
        self._policy = policy
        self._seconds = seconds
        self._clock = clock
        self._asked = {name: _Asked() for name in policy.addresses}

    @classmethod
    def load(cls, path: Path, *, required: bool = False) -> Witnesses:
        """Return the witnesses of a policy file. Raises SettingsError for a file that names none who can be asked."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise SettingsError(f"witnesses {path}: {error.strerror}; name the file of your witnesses") from error
        found = cls(read_policy(data, str(path)), required=required)
        if not found._policy.addresses:
            raise SettingsError(f"witnesses {path}: it names no witness with an address: add its URL to its line")
        if required and not found.quorum.met_by(found._policy.addresses):
            raise SettingsError(
                f"witnesses {path}: those with an address are too few for its quorum: pages would wait for ever"
            )
        return found

    def signers(self, checkpoint: str) -> frozenset[str]:
        """Return the names, as the file has them, of the witnesses who have signed a checkpoint. checkpoint: a note."""
        return frozenset(name for name, key in self._policy.witnesses.items() if cosigned(checkpoint, key))

    def cosign(self, checkpoint: str, consistency: Callable[[int, int], list[bytes]]) -> str:
        """Return the checkpoint with the signatures that came in time.

        checkpoint: a note, signed by the service.
        consistency: two sizes to the proof between them. It reads Redis and the log, so it is called in this thread.

        Raises StateError if the quorum is required and not met: the page waits, and witnesses are asked again.
        """
        size = Checkpoint.parse(read_note(checkpoint).text).size
        answers = queue.SimpleQueue[tuple[str, int, str]]()

        def ask(name: str) -> None:
            asked = self._asked[name]
            path = consistency(asked.size, size) if 0 < asked.size < size else []
            body = "\n".join([f"old {asked.size}", *map(text_of, path), "", checkpoint])
            asked.busy = True
            # A daemon, since a witness that answers a byte a minute must not keep the process from ending.
            threading.Thread(target=self._post, args=(name, body, answers), name=f"witness {name}", daemon=True).start()

        deadline = self._clock() + self._seconds
        waiting = self._due()
        for name in waiting:
            ask(name)
        lines = dict[str, str]()
        while waiting and not self._enough(lines):
            try:
                name, status, text = answers.get(timeout=max(deadline - self._clock(), 0))
            except queue.Empty:
                break
            try:
                line = self._line(name, checkpoint, size, status, text)
            except InvalidRelease as error:
                self._note(name, str(error))
            else:
                if line is None:
                    ask(name)
                    continue
                lines[name], self._asked[name].size = line, size
                self._note(name)
            waiting.discard(name)
        for name in () if self._enough(lines) else waiting:
            self._note(name, f"it has not answered within {self._seconds:g} s")
        if self.required and not self.quorum.met_by(lines):
            raise StateError(
                f"a page of the ledger waits for its witnesses: {', '.join(sorted(lines)) or 'nobody'} of "
                f"{', '.join(sorted(self._policy.witnesses))} signed, which is not the quorum; the log says why"
            )
        return checkpoint + "".join(lines[name] for name in sorted(lines))

    def _enough(self, names: Collection[str]) -> bool:
        """Whether nobody has to be waited for. If no quorum is asked for, everybody is."""
        return self.quorum.least > 0 and self.quorum.met_by(names)

    def _due(self) -> set[str]:
        """Return the names of those who are asked now."""
        before = self._clock() - _PAUSE
        return {
            name
            for name, asked in self._asked.items()
            if not asked.busy and (self.required or asked.failed is None or asked.failed <= before)
        }

    def _post(self, name: str, body: str, answers: queue.SimpleQueue[tuple[str, int, str]]) -> None:
        """Answer with the name of a witness, status and text; the status is 0 if there is no answer."""
        parts = urlsplit(self._policy.addresses[name])
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        headers = {"Content-Type": "text/plain; charset=utf-8", "Connection": "close"}
        try:
            with closing(kind(parts.netloc, timeout=self._seconds)) as connection:
                connection.request("POST", f"{parts.path}/add-checkpoint", body.encode(), headers)
                response = connection.getresponse()
                status, text = response.status, response.read(_ANSWER_BYTES).decode()
        except (OSError, http.client.HTTPException, ValueError) as error:
            status, text = 0, f"{type(error).__name__}: {error}"
        self._asked[name].busy = False
        answers.put((name, status, text))

    def _line(self, name: str, checkpoint: str, size: int, status: int, text: str) -> str | None:
        """Return the line by which a witness signs; None if it is to be asked again, since it has seen another size.

        size: of the checkpoint. Raises InvalidRelease with what it answers instead.
        """
        if status == http.client.OK:
            for line in text.splitlines(keepends=True):
                with suppress(InvalidRelease):
                    if cosigned(checkpoint + line, self._policy.witnesses[name]):
                        return line
            raise InvalidRelease("its answer holds no signature that its key has made")
        if not status:
            raise InvalidRelease(text)
        if status != http.client.CONFLICT or not re.fullmatch(r"(0|[1-9][0-9]{0,17})\n?", text):
            raise InvalidRelease(f"it answered {status}: {printable(' '.join(text[:200].split()))}")
        seen = int(text)
        if seen > size:
            raise InvalidRelease(
                f"it has signed this ledger with {seen} entries, and it has {size} here: find out whether its topic "
                "has lost records"
            )
        if seen == self._asked[name].size:
            raise InvalidRelease("it does not say which entries it has seen")
        self._asked[name].size = seen
        return None

    def _note(self, name: str, problem: str | None = None) -> None:
        """Note whether a witness has signed, or what the problem is; say so if that has changed."""
        asked = self._asked[name]
        if problem is None and asked.failed is not None:
            extra = {"event": "witness_signs", "witness": name}
            logger.info("witness %s signs again", printable(name), extra=extra)
        elif problem is not None and asked.failed is None:
            extra = {"event": "witness_failed", "witness": name}
            logger.warning("witness %s does not sign: %s", printable(name), problem, extra=extra)
        asked.failed = None if problem is None else self._clock()
