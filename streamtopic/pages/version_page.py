"""The page of one version: topics and their pictures, what is promised, and what was checked.

version_facts  everything that the page shows, as values of JSON
version_page   the page: a file that needs no network and no script, or a page of the server
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamtopic.pages.model_view import cards_of, history_of, map_of, related_of, view_of
from streamtopic.pages.plots import Curve, Picture, draw_correlations, draw_map, line_chart, small_line
from streamtopic.pages.rendering import render
from streamtopic.service.assembly import modeller_of, reader_of
from streamtopic.service.inspection.facts import heads_of
from streamtopic.service.verify import gather
from streamtopic.signed.release import GIVEN_AWAY, HELPS, ONE_DOCUMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamtopic.service.opened import Opened
    from streamtopic.signed import Release

__all__ = ["chart_to_limit", "picture_facts", "spending_chart", "version_facts", "version_page"]

Json = dict[str, Any]

_SECTIONS = {
    "topics": "Topics",
    "map": "Map",
    "correlations": "Which topics meet",
    "history": "How topics moved",
    "tasks": "Tasks",
    "promise": "What is promised",
    "checks": "What was checked",
    "what": "What this version is",
    "genuine": "How to tell that it is genuine",
    "forgotten": "What was forgotten",
    "numbers": "The numbers",
    "capacity": "Deletion capacity",
    "conditions": "Conditions of the proof",
    "limits": "What is not promised",
    "repeat": "How to repeat each check",
}
_WORDS_OF_CLASS = 10


def version_facts(
    service: Opened,
    version: int,
    *,
    update: Callable[[int, int | None], None] | None = None,
    public: bool = False,
) -> Json:
    """Return everything that the page of a published version shows; each value is one that JSON has.

    update: given if the counts and the model are to be made again and compared; as of `gather`.
    public: whether figures of the model before noise are left out, which are outside of the promise.

    Raises as `gather`.
    """
    evidence, known = gather(service, reader_of(service), modeller_of(service), version, update)
    words = {task: head["classes"] for task, head in heads_of(known.release, _WORDS_OF_CLASS).items()}
    if public:
        evidence["conditions"] = {"checks": [], "constants": {}, "vacuity": None}
    return evidence | {
        "tasks": evidence["tasks"] | {"words": words},
        "pictures": picture_facts(known.release, known.earlier),
        # Words that such a version has and a later one has not are those of forgotten documents: its number is enough.
        "left_out": sorted(number for number in known.withdrawn if number < version),
    }


def picture_facts(release: Release, earlier: Sequence[Release]) -> Json | None:
    """Return the numbers of the pictures of a version, None if its topics are withheld.

    earlier: versions before it that still stand, in order; topics are followed through them.
    """
    if release.payload.A is None:
        return None
    view = view_of(release)
    history = history_of([*earlier, release])
    return {"cards": cards_of(view), "map": map_of(view), "related": related_of(view), "history": history}


def version_page(facts: Json, service: Mapping[str, object] | None = None) -> str:
    """Return the page.

    facts: as `version_facts` returns them.
    service: what frames a page of the server; None for a file of its own.
    """
    pictures = facts["pictures"] or {}
    present = {
        **dict.fromkeys(("topics", "map", "correlations", "history"), bool(pictures)),
        "tasks": bool(facts["tasks"]["heads"] or facts["tasks"]["unfitted"]),
        "conditions": bool(facts["conditions"]["checks"]),
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
        spending=spending_chart(spending["versions"], spending["budget"]),
        given_away=GIVEN_AWAY,
        one_document=ONE_DOCUMENT,
        helps=HELPS,
        service=service,
    )


def _paths(history: Json) -> list[tuple[Json, Picture]]:
    """Return the path of each topic of a version, the largest first, with its line."""
    paths = sorted(history["paths"], key=lambda path: -path["shares"][-1])
    # One scale for all lines, so that they can be compared.
    highest = max(max(path["shares"]) for path in paths)
    return [(path, small_line(f"shares of topic {path['topic']}", path["shares"], highest)) for path in paths]


def spending_chart(versions: Sequence[Mapping[str, Any]], budget: float) -> Picture | None:
    """Return the cumulative unlearning epsilon of versions against the budget; None if no version has a bound.

    versions: in order; their `cumulative_epsilon` is None if no bound is left.
    budget: greatest cumulative epsilon.
    """
    points = [(one["version"], one["cumulative_epsilon"]) for one in versions if one["cumulative_epsilon"] is not None]
    return chart_to_limit("spending", "Cumulative unlearning epsilon", points, budget, "budget")


def chart_to_limit(
    name: str, title: str, points: Sequence[tuple[float, float]], limit: float, limit_name: str
) -> Picture | None:
    """Return values over versions below a limit; None without any. points: number of the version and value."""
    if not points:
        return None
    (first, begin), (last, end) = points[0], points[-1]
    said = f"{begin:.3g} at version {first} to {end:.3g} at version {last}, of a {limit_name} of {limit:g}"
    curves = [Curve("", points), Curve(limit_name, [(first, limit), (last, limit)], dashed=True)]
    return line_chart(title, said, curves, across="version", name=name, height=140, beside=70)
