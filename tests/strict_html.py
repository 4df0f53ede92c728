"""A reader of HTML pages that guesses nothing."""

from collections import Counter
from html.parser import HTMLParser

VOID = {"input", "link", "meta"}


class Strict(HTMLParser):
    """Reads a page and refuses what a browser would have to guess."""

    def __init__(self, written):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.text = [], Counter(), [], []
        self.shape = []
        self.feed(written)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.shape.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):  # noqa: ARG002  the signature is the parser's
        raise AssertionError(f"{tag} closes itself, which HTML does not know")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"{tag} is closed out of order"

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    def handle_data(self, data):
        self.text.append((self.open[-1] if self.open else "", data))

    def values(self, name):
        return [value for _, attribute, value in self.attributes if attribute == name]
