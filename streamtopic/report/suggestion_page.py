"""What `streamtopic suggest` found, as a picture or as a page."""

from collections.abc import Sequence

from streamtopic.report.charts import Label, Mark, Picture, Series, line_chart, svg
from streamtopic.report.rendering import render
from streamtopic.topics.how_many_topics import Candidate, Suggestion

__all__ = ["suggestion_page", "suggestion_picture"]


def suggestion_picture(found: Suggestion) -> str:
    """Return small charts of coherence, diversity, score and what lasts, over numbers of topics, as an SVG file.

    A number of topics that makes no model has no point.
    """
    return svg(_picture(found))


def suggestion_page(found: Suggestion, source: str, documents: int) -> str:
    """Return a self-contained HTML page: the recommendation, the charts, their table, and the topics themselves."""
    return render(
        "suggestion.html",
        title="How many topics?",
        source=source,
        documents=documents,
        reason=found.reason[:1].upper() + found.reason[1:],
        picture=_picture(found),
        found=found,
    )


def _picture(found: Suggestion) -> Picture:
    series = _series(found.candidates)
    chosen = None if found.recommended is None else found.candidates.index(found.recommended)
    names = [str(candidate.topics) for candidate in found.candidates]
    columns = min(3, len(series))
    height = 176 * -(-len(series) // columns) + 44
    marks: list[Mark] = []
    for k, one in enumerate(series):
        row, column = divmod(k, columns)
        marks += line_chart(one, names, left=16 + 310 * column, top=12 + 176 * row, chosen=chosen)
    marks.append(Label(16, height - 14, "across: number of topics; dashed: recommended"))
    return Picture("suggestion", "How many topics?", found.reason, 310 * columns + 16, height, marks)


def _series(candidates: Sequence[Candidate]) -> list[Series]:
    def values(name: str) -> list[float | None]:
        return [None if candidate.reason else getattr(candidate, name) for candidate in candidates]

    # Axes begin at 0 and shares end at 1, so that small differences do not look large.
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
