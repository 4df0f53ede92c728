"""The first start without containers, with the settings of docs/first-start.md and nothing else."""

import json
import re
import tomllib
from pathlib import Path

from streamtopic.cli import main
from streamtopic.local import LocalRedis

PAGE = Path(__file__).parents[2] / "docs" / "first-start.md"


def test_the_settings_of_the_page_are_enough(kafka_server, tmp_path, monkeypatch, capsys):
    """At most twelve, with keys that `keys new` makes: topics and state are made, and the doctor fails nothing."""
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    shown = tomllib.loads(text)
    assert len(shown) <= 12
    # As the page asks for, it keeps what it is told.
    with LocalRedis(tmp_path / "redis") as redis:
        for name, own in (("kafka", kafka_server.servers), ("redis_url", redis.url), ("model", "first-start")):
            text = text.replace(f'"{shown[name]}"', f'"{own}"')
        (tmp_path / "streamtopic.toml").write_text(text, "utf-8")
        # From elsewhere: paths are relative to the file.
        monkeypatch.chdir("/")
        config = ["--config", str(tmp_path / "streamtopic.toml"), "--json"]
        assert main(["keys", "new", "--to", str(tmp_path / "keys"), *config]) == 0
        assert main(["init", *config]) == 0
        capsys.readouterr()
        status = main(["doctor", *config])
        findings = json.loads(capsys.readouterr().out)["findings"]
        assert status == 0, [finding for finding in findings if not finding["passed"]]
