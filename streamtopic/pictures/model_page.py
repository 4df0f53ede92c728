"""A version of a model as one page: topics, their map, correlations, history, tasks, guarantee."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from streamtopic.errors import InvalidRelease
from streamtopic.pictures.cards import cards
from streamtopic.pictures.heat import correlation_figure
from streamtopic.pictures.history import history, history_section
from streamtopic.pictures.markup import Markup, join, tag
from streamtopic.pictures.page import document, ruled_table
from streamtopic.pictures.promise import noise_warning, promise_section
from streamtopic.pictures.topic_map import map_figure
from streamtopic.pictures.view import view_of
from streamtopic.release import Release

__all__ = ["model_page"]

_SPEAKING = 10


def model_page(release: Release, earlier: Sequence[Release] = (), withdrawn: Sequence[int] = ()) -> str:
    """Return a self-contained page about a release: no network, no script.

    earlier: versions before it that still stand, in order, by which topics are followed. withdrawn: numbers of those
    that do not, which are named and not shown. Raises InvalidRelease for a withdrawn release.
    """
    if release.withdrawn:
        raise InvalidRelease(
            f"release {release.version} is withdrawn: it holds documents that were deleted since; take a later one"
        )
    shown = release.payload.A is not None
    sections = [_head(release)]
    if shown:
        view = view_of(release)
        legend = (
            "Words in display order. Bars and “in topic”: the word's share of the topic, drawn relative to its most "
            "frequent shown word. “Here”: how much of the word's use is in this topic."
        )
        sections += [
            tag("h2", "Topics", id="topics"),
            tag("p", legend, class_="soft"),
            cards(view),
            tag("h2", "Map", id="map"),
            map_figure(view),
            tag("h2", "Which topics meet", id="correlations"),
            correlation_figure(view),
            history_section(history([*earlier, release]), view.order, withdrawn),
        ]
    if release.heads:
        sections.append(_tasks(release))
    sections.append(promise_section(release))
    return document(f"{release.envelope.model}, version {release.version}", join(sections, "\n"))


def _head(release: Release) -> Markup:
    e = release.envelope
    withheld = release.payload.A is None
    made = f"{datetime.fromtimestamp(e.created / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    what = "heads of tasks; its topics are withheld" if withheld else f"{e.r:,} topics over {e.n:,} words"
    links = [("guarantee", "Guarantee")]
    if release.heads:
        links.insert(0, ("tasks", "Tasks"))
    if not withheld:
        shown = [("topics", "Topics"), ("map", "Map"), ("correlations", "Which topics meet"), ("history", "History")]
        links = [*shown, *links]
    measures = ", ".join(f"{name} {value:.2f}" for name, value in sorted(release.quality.items()))
    return join(
        [
            tag("p", f"{e.model}, version {e.version}, {made}", class_="soft"),
            tag("h1", f"{e.m:,} documents: {what}"),
            noise_warning(release),
            tag("p", f"Quality of the topics: {measures}.", class_="soft") if measures else Markup(""),
            tag("nav", join((tag("a", name, href=f"#{place}") for place, name in links), " "), aria_label="Sections"),
        ],
        "\n",
    )


def _tasks(release: Release) -> Markup:
    """Return, for each task, the words that speak most for each class: the largest weights less the classes' mean."""
    parts = [tag("h2", "Tasks", id="tasks")]
    for task in release.heads:
        head, B = release.head(task), release.task_weights(task)
        apart = B - B.mean(axis=1, keepdims=True)
        rows: list[list[object]] = [
            [name, " ".join(release.words[k] for k in np.argsort(-apart[:, c], kind="stable")[:_SPEAKING])]
            for c, name in enumerate(head.classes)
        ]
        caption = f"{task}: fitted on {head.documents:,} labelled documents and {len(head.topics)} topics"
        parts.append(ruled_table(caption, ["class", "words that speak most for it"], rows))
    return join(parts, "\n")
