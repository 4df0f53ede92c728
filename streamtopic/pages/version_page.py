"""The page of one version: topics and their pictures, what is promised, and what was checked.

version_facts  everything that the page shows, as values of JSON
version_page   the page: a file that needs no network and no script, or a page of the server

The facts are in the file as data, and the page is drawn from nothing else. So whoever has the file can draw it again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from streamtopic.pages.charts import ChartPanel, Curve, Picture, scatter, small_line
from streamtopic.pages.model_view import cards_of, history_of, map_of, related_of, view_of
from streamtopic.pages.plots import draw_correlations, draw_map
from streamtopic.pages.rendering import render
from streamtopic.service.publish.published import heads_of, read_earlier
from streamtopic.service.verify import gather
from streamtopic.topics.over_time import FLOOR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamtopic.service.app import Service
    from streamtopic.service.verify.finding import Audited
    from streamtopic.signed import Release
    from streamtopic.topics.over_time import SliceReport

__all__ = ["DATA", "picture_facts", "slice_facts", "spending_chart", "version_facts", "version_page"]

Json = dict[str, Any]

DATA = "evidence"
"""Id of the element that holds the facts as JSON."""

_SECTIONS = {
    "topics": "Topics",
    "map": "Map",
    "correlations": "Which topics meet",
    "history": "How topics moved",
    "slices": "Over time and by class",
    "tasks": "Tasks",
    "promise": "What is promised",
    "checks": "What was checked",
    "what": "What this version is",
    "genuine": "How to tell that it is genuine",
    "forgotten": "What was forgotten",
    "numbers": "The numbers",
    "capacity": "Deletion capacity",
    "conditions": "Conditions of the proof",
    "audit": "Audit",
    "limits": "What is not promised",
    "repeat": "How to repeat each check",
}
_WORDS_OF_CLASS, _WORDS_OF_SLICE, _LARGEST = 10, 6, 5


def version_facts(
    service: Service,
    version: int,
    *,
    update: Callable[[int, int | None], None] | None = None,
    audited: Audited | None = None,
    slices: SliceReport | None = None,
    public: bool = False,
) -> Json:
    """Return everything that the page of a published version shows; each value is one that JSON has.

    update: given if the counts and the model are to be made again and compared; as of `gather`.
    audited: result of an audit, to go with the page.
    slices: topics over time or by class. They are exact, so they are for readers who may see the documents.
    public: whether figures of the model before noise are left out, which are outside of the promise.

    Raises as `gather`.
    """
    evidence = gather(service.sources, version, update, audited)
    release = service.release(version)
    standing, withdrawn = read_earlier(service.log, service.state, service.keys, version)
    words = {task: head["classes"] for task, head in heads_of(release, _WORDS_OF_CLASS).items()}
    if public:
        evidence["conditions"] = {"checks": [], "constants": {}, "vacuity": None}
        evidence["capacity"] |= {"formula": None, "tried": {}}
    return evidence | {
        "tasks": evidence["tasks"] | {"words": words},
        "pictures": picture_facts(release, standing),
        "left_out": list(withdrawn),
        "slices": None if slices is None else slice_facts(slices),
    }


def picture_facts(release: Release, earlier: Sequence[Release]) -> Json | None:
    """Return the numbers behind the pictures of a version, None if its topics are withheld.

    earlier: versions before it that still stand, in order; topics are followed through them.
    """
    if release.payload.A is None:
        return None
    view = view_of(release)
    history = history_of([*earlier, release])
    return {"cards": cards_of(view), "map": map_of(view), "related": related_of(view), "history": history}


def slice_facts(slices: SliceReport) -> Json:
    """Return the figures of slices. topics: over periods, the largest first. rows: of slices with classes."""
    found = slices.found
    topics, rows = [], []
    if slices.task is None and len(found):
        for topic in np.argsort(-(found.tokens @ found.shares), kind="stable").tolist():
            peak = int(np.argmax(found.shares[:, topic]))
            course = {
                "topic": topic,
                "shares": found.shares[:, topic].tolist(),
                "told": [f"{time}: {slices.share(row, topic)}" for row, time in enumerate(found.times)],
                "band": np.stack([found.low[:, topic], found.high[:, topic]], axis=1).tolist(),
                "peak": found.times[peak],
                "last": slices.share(len(found) - 1, topic),
                "words": slices.words(peak, topic)[:_WORDS_OF_SLICE],
            }
            topics.append(course)
    for row in range(len(found)) if slices.task is not None else ():
        largest = np.argsort(-found.shares[row], kind="stable")[:_LARGEST].tolist()
        parts = [(topic, slices.share(row, topic), slices.words(row, topic)[:_WORDS_OF_SLICE]) for topic in largest]
        shown = [{"topic": topic, "share": share, "words": words} for topic, share, words in parts]
        rows.append({"name": found.names[row], "documents": int(found.documents[row]), "topics": shown})
    about = {"unit": slices.unit, "task": slices.task, "floor": FLOOR, "topics": topics, "rows": rows}
    return about | {"hidden": found.hidden, "outside": found.outside}


def version_page(facts: Json, service: Mapping[str, object] | None = None) -> str:
    """Return the page.

    facts: as `version_facts` returns them, or as they are read back from JSON.
    service: what frames a page of the server; None for a file of its own, which then holds the facts too.
    """
    pictures = facts["pictures"] or {}
    slices = facts["slices"]
    present = {
        **dict.fromkeys(("topics", "map", "correlations", "history"), bool(pictures)),
        "slices": slices is not None,
        "tasks": bool(facts["tasks"]["heads"] or facts["tasks"]["unfitted"]),
        "conditions": bool(facts["conditions"]["checks"]),
        "audit": facts["audit"] is not None,
    }
    outcomes = [finding["passed"] for finding in facts["findings"]]
    spending = facts["spending"]
    return render(
        "version.html",
        title=f"Version {facts['version']} of {facts['model']}",
        sections={name: said for name, said in _SECTIONS.items() if present.get(name, True)},
        facts=facts,
        counts={outcome: outcomes.count(outcome) for outcome in (True, False, None)},
        map=draw_map(pictures["map"]) if pictures else None,
        heat=draw_correlations(pictures["related"]) if pictures else None,
        paths=_paths(pictures["history"]) if pictures else [],
        courses=_courses(slices) if slices else [],
        spending=spending_chart(spending["versions"], spending["budget"]),
        service=service,
        data=None if service else _embedded(facts),
        data_id=DATA,
    )


def _paths(history: Json) -> list[tuple[Json, Picture]]:
    """Return the path of each topic of a version, the largest first, with its line."""
    paths = sorted(history["paths"], key=lambda path: -path["shares"][-1])
    # One scale for all lines, so that they can be compared.
    highest = max(max(path["shares"]) for path in paths)
    return [(path, small_line(f"shares of topic {path['topic']}", path["shares"], highest)) for path in paths]


def _courses(slices: Json) -> list[tuple[Json, Picture]]:
    """Return the course of each topic over periods, with its line and the band of its intervals."""
    highest = max((max(high for _, high in one["band"]) for one in slices["topics"]), default=0.0)
    courses = []
    for one in slices["topics"]:
        title = f"share of topic {one['topic']} by {slices['unit']}"
        courses.append((one, small_line(title, one["shares"], highest, one["band"], one["told"])))
    return courses


def spending_chart(versions: Sequence[Mapping[str, Any]], budget: float) -> Picture | None:
    """Return the cumulative unlearning epsilon of versions against the budget; None if no version has a bound.

    versions: in order; their `cumulative_epsilon` is None if no bound is left.
    budget: greatest cumulative epsilon.
    """
    points = [(one["version"], one["cumulative_epsilon"]) for one in versions if one["cumulative_epsilon"] is not None]
    if not points:
        return None
    (first, least), (last, most) = points[0], points[-1]
    said = f"{least:.3g} at version {first} to {most:.3g} at version {last}, of a budget of {budget:g}"
    limit = Curve("budget", [(versions[0]["version"], budget), (versions[-1]["version"], budget)], dashed=True)
    curves = [Curve("spent", points, joined=True), limit]
    panel = ChartPanel("Cumulative unlearning epsilon", "version", "epsilon", curves, whole=True, from_zero=True)
    return scatter(panel.title, said, [panel], name="spending", height=140, beside=70)


def _embedded(facts: Json) -> Markup:
    """Return the facts for programs."""
    # JSON is in ASCII by default, so the filter of `render` leaves it as it is.
    written = json.dumps(facts, allow_nan=False)
    # Without angle brackets the text cannot end the element around it.
    for character in "<>&":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return Markup(written)  # noqa: S704  see above
