"""Numbers that the pages quote are those of the program, word for word where they stand."""

import re
from pathlib import Path

import pytest

from campaign.rounds import Options
from streamtopic.audit.attack import AuditPlan
from streamtopic.counts.count_pairs import HEAVY
from streamtopic.local.kafka_broker import LEAST_JAVA
from streamtopic.monitoring.health import MARGIN, STALLED_AFTER
from streamtopic.monitoring.metrics import MOST
from streamtopic.pages import gate, requests_api, service_view, web_pages
from streamtopic.security.certificates import SERVER_DAYS
from streamtopic.service import processes
from streamtopic.settings import Settings
from streamtopic.signed.releases_topic import CHUNK_BYTES, RELEASE_BYTES
from streamtopic.state.change_log import MOST_UNSUMMED
from streamtopic.state.word_ids import MANY_WORDS, MAX_WORD_IDS, NEARLY
from streamtopic.topics import anchors, how_many_topics, learner
from streamtopic.topics.heads import MOST_CLASSES
from streamtopic.words.text import MAX_PASSAGE

ROOT = Path(__file__).parents[2]
DEFAULT = Settings()
WORDS = {2: "two", 3: "three", 5: "five", 8: "eight", 10: "ten", 11: "eleven", 12: "twelve", 30: "thirty"}


def _word(number):
    return WORDS[int(number)]


STALLED = f"red {STALLED_AFTER:.0f} to {STALLED_AFTER + MARGIN + processes.LONGEST_PAUSE:.0f} s"
ONE_TEXT = f"A text of more than {MAX_PASSAGE:,} tokens"
PARTS = {4: "a quarter", 10: "a tenth"}

QUOTED = [
    ("concepts.md", f"in at least {DEFAULT.min_df} documents, at least .05 % of them, and at most 10 % of them"),
    ("concepts.md", f"words of {learner._MOST_MIN_DF_SHARE:.0%} of the documents".replace("%", " %")),
    ("concepts.md", f"words of up to {learner._LEAST_MAX_DF} documents stay"),
    ("concepts.md", f"Where there are {learner._FEWEST_WORDS:,} such words or more"),
    ("concepts.md", f"occurs {_word(learner._REPEATS)} times or more in a document on average"),
    ("concepts.md", f"{PARTS[HEAVY]} of the tokens or more"),
    ("concepts.md", ONE_TEXT),
    ("concepts.md", f"lies in a topic for {anchors.MEMBER:.1g} or more".replace("0.", ".")),
    ("concepts.md", f"words in at least {DEFAULT.anchor_min_df * 100:.0f} % of the documents (`anchor_min_df`)"),
    ("concepts.md", f"By default it is {DEFAULT.capacity.share * 100:.0f} % of them (`capacity`)"),
    ("quickstart.md", f"the new documents are {DEFAULT.update_after * 100:.0f} % of the documents of the model"),
    ("quickstart.md", f"passages of texts of more than {MAX_PASSAGE:,} tokens"),
    ("quickstart.md", f"runs on the Java {LEAST_JAVA} on your PATH"),
    ("guarantees.md", f"at most {RELEASE_BYTES >> 20} MiB of unfinished releases"),
    ("messages.md", f"records of at most {CHUNK_BYTES:,} bytes"),
    ("messages.md", f"A release has at most {RELEASE_BYTES:,} bytes"),
    ("operations.md", STALLED),
    ("operations.md", f"a warning at {MANY_WORDS:,} words in a partition"),
    ("operations.md", f"A partition has {MAX_WORD_IDS // 1_000_000} million of them"),
    ("operations.md", f"warn at {NEARLY * 100:.0f} %"),
    ("operations.md", f"`link_months` after the month is over ({DEFAULT.link_months} by default)"),
    ("operations.md", f"by default each {DEFAULT.self_check / 3600:.0f} hours"),
    ("capacity-planning.md", f"warn at {MANY_WORDS:,}"),
    ("capacity-planning.md", f"at most {2 * MOST_UNSUMMED >> 20} MiB a partition"),
    ("deploy.md", f"They are valid for {SERVER_DAYS} days"),
    ("pages.md", f"has at most {gate.MOST_BYTES >> 20} MiB"),
    ("pages.md", f"the page of a version: {_word(web_pages._VERSION_SECONDS / 60)} minutes"),
    ("pages.md", f"is read every {_word(service_view._RESTING)} seconds"),
    ("pages.md", {100: "the first hundred proofs"}[requests_api.MOST_PROOFS]),
    ("tasks.md", f"more than {MOST_CLASSES} classes are there"),
    ("contributing.md", f"The catalogue holds {MOST} families at most"),
    ("audit.md", f"with {AuditPlan().confidence * 100:.0f} % confidence for all games together"),
    ("pictures.md", f"within {PARTS[round(1 / how_many_topics.NEAR)]} of the best"),
    ("faults.md", f"{_word(Options(1).round_faults).title()} faults fall into a round of six seconds"),
]


@pytest.mark.parametrize(("page", "sentence"), QUOTED, ids=lambda part: part[:50])
def test_a_page_quotes_the_program(page, sentence):
    """Whoever changes the number in the program meets the sentence that tells it."""
    text = re.sub(r"\s+", " ", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert sentence in text


def test_settings_on_the_pages_are_settings(tmp_path):
    """Each block of TOML on a page is a settings file that the program accepts."""
    from streamtopic.settings import load

    found = 0
    for page in sorted((ROOT / "docs").glob("*.md")):
        for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            (tmp_path / "page.toml").write_text(block, encoding="utf-8")
            load(config=tmp_path / "page.toml")
            found += 1
    assert found >= 2


def test_a_producer_with_a_password_is_made_as_the_page_says(tmp_path, monkeypatch):
    """The lines of the page on deploying are Python, and the options that they make are accepted."""
    from streamtopic.streams import KafkaOptions

    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    names = {"password": "a password"}
    # Only the last line needs the broker, which it names.
    exec(compile(block.rpartition("producer = ")[0], "deploy.md", "exec"), names)  # noqa: S102  executing it is the point
    assert isinstance(names["kafka"], KafkaOptions)
    assert (names["kafka"].sasl_username, names["kafka"].ssl_cafile) == ("producer", "ca.pem")
