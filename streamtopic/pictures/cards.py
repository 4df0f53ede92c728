"""Each topic's words, as a table with bars: the picture is its own table."""

from streamtopic.pictures.markup import Markup, tag
from streamtopic.pictures.view import ModelView

__all__ = ["cards"]


def cards(view: ModelView) -> Markup:
    """Return a card for each topic, the largest first, under ids that the map links to."""
    return tag("div", *(_card(view, topic) for topic in view.order), class_="cards")


def _card(view: ModelView, topic: int) -> Markup:
    at = list(view.top[topic])
    probabilities, here = view.A[at, topic], view.here(topic)
    longest = float(probabilities.max(initial=0.0)) or 1.0
    head = tag(
        "tr",
        tag("th", "word", scope="col"),
        tag("th", "", aria_hidden="true"),
        tag("th", "in topic", scope="col", class_="n soft"),
        tag("th", "here", scope="col", class_="n soft"),
    )
    rows = [
        tag(
            "tr",
            tag("th", view.words[word], scope="row"),
            tag("td", _bar(float(p) / longest), aria_hidden="true"),
            tag("td", f"{p:.2%}", class_="n"),
            tag("td", f"{own:.0%}", class_="n soft"),
        )
        for word, p, own in zip(at, probabilities, here, strict=True)
    ]
    title = tag("header", tag("h3", f"Topic {topic}"), tag("span", f"{view.shares[topic]:.1%} of all words"))
    table = tag("table", tag("thead", head), tag("tbody", *rows))
    return tag("article", title, table, class_="card", id=f"topic-{topic}")


def _bar(share: float) -> Markup:
    return tag("span", class_="bar", style=f"width:{max(100 * share, 0.5):.1f}%")
