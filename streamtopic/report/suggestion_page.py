"""The answer of `streamtopic suggest`, as a picture or as a page."""

from collections.abc import Sequence

from streamtopic.report.charts import Label, Mark, Picture, Series, line_chart, svg
from streamtopic.report.rendering import render
from streamtopic.topics.how_many_topics import Candidate, Suggestion

__all__ = ["suggestion_page", "suggestion_picture"]


def suggestion_picture(found: Suggestion) -> str:
    """Return small charts of the measures over numbers of topics, as an SVG file.

    found: a number of topics that makes no model has no point in the charts.
    """
    return svg(_picture(found))


def suggestion_page(found: Suggestion, source: str, documents: int) -> str:
    """Return a self-contained HTML page: the recommendation, the charts, their table, and the topics themselves.

    source: name of the corpus.
    documents: their number.
    """
    # Only the first letter: `capitalize` would change the rest as well.
    reason = found.reason[:1].upper() + found.reason[1:]
    return render(
        "suggestion.html",
        title="How many topics?",
        source=source,
        documents=documents,
        reason=reason,
        picture=_picture(found),
        found=found,
    )


# Pixels from the left edge of a chart to that of the next one, and from row to row.
_ACROSS, _DOWN = 310, 176


def _picture(found: Suggestion) -> Picture:
    """Return the charts in rows of three."""
    series = _series(found.candidates)
    chosen = None
    if found.recommended is not None:
        chosen = found.candidates.index(found.recommended)
    names = [str(candidate.topics) for candidate in found.candidates]
    columns = min(3, len(series))
    rows = -(-len(series) // columns)
    width = _ACROSS * columns + 16
    height = _DOWN * rows + 44
    marks: list[Mark] = []
    for k, one in enumerate(series):
        row, column = divmod(k, columns)
        left = 16 + _ACROSS * column
        marks += line_chart(one, names, left=left, top=12 + _DOWN * row, chosen=chosen)
    marks.append(Label(16, height - 14, "across: number of topics; dashed: recommended"))
    return Picture("suggestion", "How many topics?", found.reason, width, height, marks)


def _series(candidates: Sequence[Candidate]) -> list[Series]:
    """Return the measures of each number of topics; stability only where it was measured."""

    def values(name: str) -> list[float | None]:
        return [None if candidate.reason else getattr(candidate, name) for candidate in candidates]

    # Axes begin at 0 and shares end at 1, so that small differences do not look large.
    found: list[Series] = []
    found.append(Series("Coherence", values("coherence"), "mean NPMI of the ten top words", at_least=0.0))
    found.append(Series("Diversity", values("diversity"), "distinct words among the top words", 0.0, 1.0))
    found.append(Series("Score", values("score"), "coherence times diversity", at_least=0.0))
    if any(candidate.kept is not None for candidate in candidates):
        found.append(Series("Words that last", values("kept"), "top words left after a forget set", 0.0, 1.0))
        found.append(Series("Anchors that stay", values("steady"), "forget sets that an update serves", 0.0, 1.0))
    found.append(Series("Smallest topic", values("least_share"), "its share of all words", at_least=0.0))
    return found
