"""How topics moved over versions, each matched with its counterpart in the version before."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from streamtopic.pictures.lines import sparkline
from streamtopic.pictures.markup import Markup, join, tag
from streamtopic.pictures.page import ruled_table
from streamtopic.release import Envelope, Release, match_topics

__all__ = ["History", "Path", "Step", "history", "history_section"]

_TOP = 10


@dataclass(frozen=True, slots=True)
class Step:
    """A version. kept: share of the topics' ten top words that it has in common with the version before; moved: mean
    total variation distance to it, from 0 to 1; None for the first.
    """

    envelope: Envelope
    kept: float | None
    moved: float | None


@dataclass(frozen=True, slots=True)
class Path:
    """A topic of the newest version: its share in each version, and top words that came and went since the first."""

    topic: int
    shares: tuple[float, ...]
    came: tuple[str, ...]
    went: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class History:
    """Versions, oldest first, and the path of each topic of the newest."""

    steps: tuple[Step, ...]
    paths: tuple[Path, ...]


def history(releases: Sequence[Release]) -> History:
    """Follow the topics of the last of `releases`, in version order, back to the first that has as many topics.

    Withdrawn versions must not be among them: what they have that a later one has not is what was forgotten.
    """
    chain = [releases[-1]]
    columns = [list(range(releases[-1].envelope.r))]
    steps: list[Step] = []
    for before in reversed(releases[:-1]):
        after = chain[-1]
        if before.envelope.r != after.envelope.r or before.payload.A is None:
            break
        place = match_topics(after.words, after.A, before.words, before.A)
        moved = _moved(after, before, place)
        tops = zip(after.top_words, (before.top_words[k] for k in place), strict=True)
        kept = float(np.mean([len({*a[:_TOP]} & {*b[:_TOP]}) / max(len(a[:_TOP]), 1) for a, b in tops]))
        steps.append(Step(after.envelope, kept, moved))
        columns.append([place[k] for k in columns[-1]])
        chain.append(before)
    steps.append(Step(chain[-1].envelope, None, None))
    newest, first = chain[0], chain[-1]
    paths = []
    for topic in range(newest.envelope.r):
        shares = tuple(float(one.shares[at[topic]]) for one, at in zip(chain, columns, strict=True))[::-1]
        now, then = newest.top_words[topic][:_TOP], first.top_words[columns[-1][topic]][:_TOP]
        came, went = (tuple(w for w in a if w not in b) for a, b in ((now, then), (then, now)))
        paths.append(Path(topic, shares, came, went))
    return History(tuple(steps[::-1]), tuple(paths))


def _moved(after: Release, before: Release, place: Sequence[int]) -> float:
    words = sorted({*after.words, *before.words})
    gap = np.zeros((len(words), after.envelope.r))
    gap[np.searchsorted(words, after.words)] += after.A
    gap[np.searchsorted(words, before.words)] -= before.A[:, list(place)]
    total: npt.NDArray[np.float64] = np.abs(gap).sum(axis=0) / 2
    return float(total.mean())


def history_section(found: History, order: Sequence[int], withdrawn: Sequence[int]) -> Markup:
    """Return the versions and the paths of topics in this order, as tables with small lines.

    withdrawn: earlier versions that are not shown, and are said not to be.
    """
    parts: list[Markup] = [tag("h2", "How topics moved", id="history")]
    if withdrawn:
        parts.append(tag("p", _unshown(withdrawn), class_="soft"))
    if len(found.steps) < 2:
        parts.append(
            tag("p", "No earlier version that still stands has as many topics, so there is nothing to compare.")
        )
        return join(parts, "\n")
    first, last = found.steps[0].envelope.version, found.steps[-1].envelope.version
    highest = max(max(path.shares) for path in found.paths)
    rows: list[list[object]] = []
    for topic in order:
        path = found.paths[topic]
        line = sparkline(path.shares, highest, f"shares of topic {topic} from version {first} to {last}")
        change = path.shares[-1] - path.shares[0]
        came = [tag("span", word, class_="came") for word in path.came]
        words = join([*came, *(tag("s", word, class_="went") for word in path.went)], " ")
        said = words if path.came or path.went else tag("span", "the same ten", class_="soft")
        number = tag("a", f"Topic\u00a0{topic}", href=f"#topic-{topic}")
        rows.append([number, line, f"{path.shares[0]:.1%}", f"{path.shares[-1]:.1%}", f"{100 * change:+.1f}", said])
    head = ["topic", "share", f"version {first}", f"version {last}", "points", "words that came, and went"]
    parts += [ruled_table(f"Topics of version {last} and their counterparts since version {first}", head, rows)]
    parts += [_versions(found)]
    return join(parts, "\n")


def _unshown(withdrawn: Sequence[int]) -> str:
    many = len(withdrawn) > 1
    listed = ", ".join(map(str, withdrawn[-10:]))
    return (
        f"Version{'s' if many else ''} {listed} {'are' if many else 'is'} withdrawn and left out: what "
        f"{'they show' if many else 'it shows'} beyond later ones is what was forgotten."
    )


def _versions(found: History) -> Markup:
    rows = [
        [
            step.envelope.version,
            _when(step.envelope.created),
            step.envelope.kind,
            f"{step.envelope.m:,}",
            step.envelope.forgotten,
            "-" if step.kept is None else f"{step.kept:.0%}",
            "-" if step.moved is None else f"{step.moved:.3f}",
        ]
        for step in found.steps
    ]
    head = ["version", "created", "made by", "documents", "forgotten", "top words kept", "mean change (0 to 1)"]
    return ruled_table("Versions that still stand; each compared with the one before it", head, rows)


def _when(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M} UTC"
