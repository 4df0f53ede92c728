"""What `streamtopic suggest` found, as a picture or a page."""

from collections.abc import Sequence

from streamtopic.pictures.lines import Series, line_chart
from streamtopic.pictures.markup import Markup, join, tag
from streamtopic.pictures.page import document, figure, ruled_table
from streamtopic.pictures.style import PICTURE
from streamtopic.topics.recommend import Candidate, Suggestion

__all__ = ["suggestion_page", "suggestion_picture"]

_NAMESPACE = "http://www.w3.org/2000/svg"


def suggestion_picture(found: Suggestion, *, whole: bool = True) -> Markup:
    """Return small charts of coherence, diversity, score and what lasts, over numbers of topics, as one SVG.

    whole: with its own style, as a file of its own needs it. A number of topics that makes no model has no point.
    """
    series = _series(found.candidates)
    chosen = None if found.recommended is None else found.candidates.index(found.recommended)
    names = [str(candidate.topics) for candidate in found.candidates]
    columns = min(3, len(series))
    cells = [
        line_chart(one, names, left=16 + 310 * (k % columns), top=12 + 176 * (k // columns), chosen=chosen)
        for k, one in enumerate(series)
    ]
    height = 176 * -(-len(series) // columns) + 44
    style = [tag("style", Markup(PICTURE)), _paper(height)] if whole else []
    return tag(
        "svg",
        tag("title", "How many topics?", id="suggestion-title"),
        tag("desc", found.reason, id="suggestion-desc"),
        *style,
        *cells,
        tag("text", "across: number of topics; dashed: recommended", x=16, y=height - 14, class_="soft small"),
        viewBox=f"0 0 {310 * columns + 16} {height}",
        role="img",
        aria_labelledby="suggestion-title suggestion-desc",
        xmlns=_NAMESPACE,
    )


def _paper(height: int) -> Markup:
    return tag("rect", x=0, y=0, width="100%", height=height, class_="paper")


def _series(candidates: Sequence[Candidate]) -> list[Series]:
    def values(name: str) -> list[float | None]:
        return [None if candidate.reason else getattr(candidate, name) for candidate in candidates]

    found = [
        Series("Coherence", values("coherence"), "mean NPMI of the ten top words", at_least=0.0),
        Series("Diversity", values("diversity"), "distinct words among the top words", 0.0, 1.0),
        Series("Score", values("score"), "coherence times diversity", at_least=0.0),
    ]
    if any(candidate.kept is not None for candidate in candidates):
        found += [
            Series("Words that last", values("kept"), "top words left after a forget set", 0.0, 1.0),
            Series("Anchors that stay", values("steady"), "forget sets that an update serves", 0.0, 1.0),
        ]
    return [*found, Series("Smallest topic", values("least_share"), "its share of all words", at_least=0.0)]


def suggestion_page(found: Suggestion, source: str, documents: int) -> str:
    """Return a self-contained HTML page: the recommendation, the charts, their table, and the topics themselves."""
    best = found.recommended
    parts = [
        tag("h1", "How many topics?"),
        tag("p", f"{documents:,} documents of {source}.", class_="soft"),
        tag("p", found.reason[:1].upper() + found.reason[1:] + "."),
        figure(
            suggestion_picture(found, whole=False),
            "Each number of topics was learned on the same counts. Coherence is from -1 to 1, the others are shares.",
        ),
        _table("Numbers of topics", found.candidates),
    ]
    if found.variants:
        parts += [tag("h2", "Other thresholds"), _table("The same number under other thresholds", found.variants)]
    if best is not None:
        rows = [[k, " ".join(words)] for k, words in enumerate(best.top_words)]
        parts += [tag("h2", f"The {best.topics} topics"), ruled_table("Top words", ["topic", "words"], rows)]
    return document("How many topics?", join(parts, "\n"))


def _table(caption: str, candidates: Sequence[Candidate]) -> Markup:
    head = ["topics", "max_df", "anchor_min_df", "words", "coherence", "diversity", "score", "words last",
            "anchors stay", "smallest topic"]  # fmt: skip
    rows: list[list[object]] = []
    for one in candidates:
        limits: list[object] = [one.topics, f"{one.max_df:g}", f"{one.anchor_min_df:g}"]
        if one.reason:
            rows.append([*limits, one.reason])
            continue
        lasting = ["-" if share is None else f"{share:.0%}" for share in (one.kept, one.steady)]
        measures = [f"{one.coherence:.3f}", f"{one.diversity:.2f}", f"{one.score:.3f}"]
        rows.append([*limits, one.words, *measures, *lasting, f"{one.least_share:.1%}"])
    return ruled_table(caption, head, rows)
