"""Figures for notebooks and papers, by matplotlib: `from streamtopic import plots`.

    topics          top words of each topic, as bars
    topic_map       topics near each other where they use the same words
    correlations    which topics meet in documents
    shares          shares of topics over versions
    suggestion      measures of numbers of topics, by `suggest_topics`

A model is a Release or a fitted AnchorTopics. Each function returns a new matplotlib Figure: save it with `savefig`, or
leave it as the last line of a cell. matplotlib comes with the extra `demo` and is loaded on first use. For pages
without matplotlib and notebooks, see `streamtopic export`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.errors import UsageError
from streamtopic.report.model_view import correlations as _correlations
from streamtopic.report.model_view import place_topics, similar_order, spread, topic_history, view_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from streamtopic.signed import Release
    from streamtopic.topics.estimator import AnchorTopics
    from streamtopic.topics.how_many_topics import Suggestion

__all__ = ["correlations", "shares", "suggestion", "topic_map", "topics"]

_MARK, _WARM = "#2563ad", "#b4530a"
# More names would cover each other on a map, and more squares would be too small.
_LARGEST = 40


def topics(
    model: Release | AnchorTopics, *, most: int = 20, top: int = 10, feature_names: Sequence[str] | None = None
) -> Figure:
    """Return the top words of the largest topics, a panel each, bars of p(w|t).

    most: number of topics.
    top: words of a topic, at most 10.
    feature_names: words of an AnchorTopics' columns.

    Raises UsageError without matplotlib or for a value that is not a model, InvalidRelease for a release that is
    withdrawn or withholds its topics.
    """
    _require(most=most, top=top)
    view = view_of(model, feature_names)
    chosen = view.order[:most]
    columns = min(4, len(chosen))
    rows = -(-len(chosen) // columns)
    figure = _figure(3.1 * columns, (0.19 * top + 0.75) * rows)
    for place, topic in enumerate(chosen):
        axes = figure.add_subplot(rows, columns, place + 1)
        at = list(view.top[topic][:top])
        places = np.arange(len(at))
        axes.barh(places, view.A[at, topic], color=_MARK, height=0.7)
        axes.set_yticks(places)
        words = [view.words[k] for k in at]
        _names(axes.set_yticklabels(words, fontsize=8))
        axes.invert_yaxis()
        title = f"Topic {topic} ({view.shares[topic]:.1%})"
        axes.set_title(title, fontsize=9, loc="left")
        axes.tick_params(axis="x", labelsize=7)
        axes.locator_params(axis="x", nbins=4)
        _open(axes)
    return figure


def topic_map(model: Release | AnchorTopics, *, feature_names: Sequence[str] | None = None) -> Figure:
    """Return a map of the 100 largest topics by the distances between their words (classical scaling), areas by share.

    The 40 largest topics have a name of two words. Parameters and errors are as in `topics`.
    """
    view = view_of(model, feature_names)
    chosen = sorted(view.order[:100])
    plan = place_topics(view.A[:, chosen])
    figure = _figure(9.0, 6.5)
    # After `_figure`, which says how to get matplotlib where it is missing.
    from matplotlib.patches import Circle

    axes = figure.add_subplot()
    # Topics of the same words lie in one place: an extent of 0 would make circles of radius 0.
    widest = np.ptp(plan.positions, axis=0).max(initial=0.0)
    extent = max(float(widest), 1e-9)
    # In units of the map's width, circles together take about a tenth of it.
    shares = view.shares[chosen]
    by_share = np.sqrt(0.06 * shares / np.pi)
    radii = extent * np.maximum(by_share, 0.012)
    named = set(view.order[:_LARGEST])
    has_name = [topic in named for topic in chosen]
    widths = np.where(has_name, 0.17 * extent, 2 * radii)
    heights = 2 * radii + 0.05 * extent
    sizes = np.stack([widths, heights], axis=1)
    # The canvas of `spread` begins at 0; a margin of one extent on each side is room to move boxes into.
    shift = plan.positions.min(axis=0) - extent
    room = 3 * extent
    places = spread(plan.positions - shift, sizes, room, room) + shift
    for topic, radius, (x, y) in zip(chosen, radii, places, strict=True):
        circle = Circle((x, y), radius, facecolor=_MARK + "38", edgecolor=_MARK)
        axes.add_patch(circle)
        axes.text(x, y, str(topic), ha="center", va="center", fontsize=8, weight="bold")
        if topic in named:
            below = y - radius - 0.004 * extent
            axes.text(x, below, view.name(topic), ha="center", va="top", fontsize=7, parse_math=False)
    axes.set_aspect("equal")
    axes.autoscale_view()
    axes.margins(0.08)
    axes.set_axis_off()
    title = f"Distances between topics; two axes can show {plan.shown:.0%} of them"
    axes.set_title(title, fontsize=9, loc="left")
    return figure


def correlations(model: Release | AnchorTopics, *, feature_names: Sequence[str] | None = None) -> Figure:
    """Return the correlations between the topics of two words of one document, as colours, of the 40 largest topics.

    Topics that meet in documents are neighbours. Parameters and errors are as in `topics`.
    """
    view = view_of(model, feature_names)
    chosen = sorted(view.order[:_LARGEST])
    part = _correlations(view)[np.ix_(chosen, chosen)]
    order = similar_order(part)
    shown = part[np.ix_(order, order)]
    # A topic with itself is always 1, and would get the strongest colour.
    np.fill_diagonal(shown, np.nan)
    limit = float(np.nanmax(np.abs(shown))) if len(chosen) > 1 else 1.0
    size = 2.5 + 0.22 * len(chosen)
    figure = _figure(size + 2, size)
    axes = figure.add_subplot()
    image = axes.imshow(shown, cmap="PuOr_r", vmin=-limit, vmax=limit)
    labels = [f"{chosen[k]}  {view.name(chosen[k])}" for k in order]
    axes.set_yticks(range(len(chosen)))
    _names(axes.set_yticklabels(labels, fontsize=7))
    axes.set_xticks(range(len(chosen)))
    numbers = [str(chosen[k]) for k in order]
    axes.set_xticklabels(numbers, fontsize=7)
    axes.set_title("Correlations between topics", fontsize=9, loc="left")
    figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def shares(releases: Sequence[Release], *, most: int = 10) -> Figure:
    """Return the shares of the largest topics over versions, each topic matched with its counterparts.

    releases: versions that still stand, in order; versions before a change of the number of topics are left out.
    most: number of topics.

    Raises UsageError for an empty list, InvalidRelease where a release is withdrawn or the last withholds its topics.
    """
    _require(most=most)
    if not releases:
        raise UsageError("there is no release to show: give the versions that a subscriber received")
    for release in releases:
        # Raises for a withdrawn release: a picture of changes would show forgotten words.
        if release.payload.A is not None:
            release.topics(0)
    view = view_of(releases[-1])
    found = topic_history(releases)
    versions = [str(step.envelope.version) for step in found.steps]
    figure = _figure(8.0, 4.5)
    axes = figure.add_subplot()
    chosen = view.order[:most]
    paths = [found.paths[topic].shares for topic in chosen]
    highest = max(max(path) for path in paths)
    # The height of a line of text, so that names do not cover each other.
    levels = _apart([path[-1] for path in paths], 0.035 * highest)
    last = len(versions) - 1
    for topic, path, level in zip(chosen, paths, levels, strict=True):
        (line,) = axes.plot(range(len(versions)), path, marker="o", markersize=4)
        name = f"  {topic}  {view.name(topic)}"
        axes.text(last, level, name, color=line.get_color(), fontsize=7, va="center", parse_math=False)
    axes.set_xticks(range(len(versions)))
    axes.set_xticklabels(versions)
    axes.set_xlabel("version")
    axes.set_ylabel("share of all words")
    axes.set_ylim(bottom=0)
    _open(axes)
    return figure


def suggestion(found: Suggestion) -> Figure:
    """Return the measures of each number of topics, with the recommended number marked.

    Raises UsageError without matplotlib.
    """
    names = [str(candidate.topics) for candidate in found.candidates]
    panels = [("coherence", "Coherence (NPMI)"), ("diversity", "Diversity"), ("score", "Score")]
    if any(candidate.kept is not None for candidate in found.candidates):
        panels += [("kept", "Words that last"), ("steady", "Anchors that stay")]
    panels.append(("least_share", "Smallest topic"))
    rows = -(-len(panels) // 3)
    figure = _figure(9.0, 2.3 * rows + 0.4)
    for place, (name, title) in enumerate(panels):
        axes = figure.add_subplot(rows, 3, place + 1)
        values = [np.nan if one.reason else getattr(one, name) for one in found.candidates]
        axes.plot(range(len(names)), values, marker="o", color=_MARK)
        if found.recommended is not None:
            recommended = found.candidates.index(found.recommended)
            axes.axvline(recommended, color=_WARM, linestyle="--", linewidth=1)
        axes.set_xticks(range(len(names)))
        axes.set_xticklabels(names)
        if name in {"diversity", "kept", "steady"}:
            axes.set_ylim(0, 1.05)
        axes.set_title(title, fontsize=9, loc="left")
        _open(axes)
    return figure


def _require(**amounts: int) -> None:
    """Raise UsageError for an amount below 1."""
    for name, amount in amounts.items():
        if amount < 1:
            raise UsageError(f"{name} is {amount}: use at least 1")


def _figure(width: float, height: float) -> Figure:
    """Return an empty figure; width, height: in inches. Raises UsageError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("these figures need matplotlib: pip install 'streamtopic[demo]'") from None
    # Not through pyplot: that would keep every figure alive and pick a backend.
    return Figure(figsize=(width, height), layout="constrained")


def _apart(values: Sequence[float], gap: float) -> list[float]:
    """Return levels of labels: near these values, in the same order, neighbours at least `gap` apart."""
    order = np.argsort(values, kind="stable")
    levels = np.array(values, np.float64)
    for below, above in itertools.pairwise(order):
        levels[above] = max(levels[above], levels[below] + gap)
    return [float(level) for level in levels]


def _names(labels: Sequence[Any]) -> None:
    """Make labels show their words as they are."""
    # matplotlib takes text between dollar signs for mathematics.
    for label in labels:
        label.set_parse_math(False)


def _open(axes: Axes) -> None:
    """Leave out the frame at the top and on the right."""
    axes.spines[["top", "right"]].set_visible(False)
