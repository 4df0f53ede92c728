"""Settings: where they come from and what wrong ones say."""

import pytest

from streamtopic.errors import SettingsError
from streamtopic.settings import Settings, load, write


def _file(folder, text):
    path = folder / "streamtopic.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_win_over_variables_and_variables_over_the_file(tmp_path, monkeypatch):
    """The nearest source decides, setting by setting, and what nobody has set is known as such."""
    path = _file(tmp_path, "topics = 5\nepsilon = 2.0\ndelta = 1e-5\n")
    monkeypatch.setenv("STREAMTOPIC_TOPICS", "6")
    monkeypatch.setenv("STREAMTOPIC_EPSILON", "3")
    # Compose passes a variable that is not set as an empty one.
    monkeypatch.setenv("STREAMTOPIC_DELTA", "")
    found = load({"topics": 7}, config=path)
    assert (found.topics, found.epsilon, found.delta, found.min_df) == (7, 3.0, 1e-5, Settings().min_df)
    assert found.model_fields_set == {"topics", "epsilon", "delta"}


def test_witnesses_that_are_required_are_named(tmp_path):
    """Pages would wait for ever for witnesses that are not named; a path in the file is relative to it."""
    with pytest.raises(SettingsError, match="needs `witnesses`"):
        load(config=_file(tmp_path, "require_witnesses = true\n"))
    found = load(config=_file(tmp_path, 'require_witnesses = true\nwitnesses = "policy"\n'))
    assert (found.witnesses, found.require_witnesses) == (tmp_path / "policy", True)
    write(found, tmp_path / "again.toml")
    assert load(config=tmp_path / "again.toml") == found


def test_a_directory_stands_for_its_own_file(tmp_path, monkeypatch):
    """`--dir`, or its variable, needs no `--config`, and paths in the file are relative to it."""
    _file(tmp_path, 'topics = 5\nkeys = "mine"\nprivate.words = "words"\n')
    found = load({"dir": tmp_path})
    monkeypatch.setenv("STREAMTOPIC_DIR", str(tmp_path))
    assert load() == found
    assert (found.topics, found.dir, found.keys) == (5, tmp_path, tmp_path / "mine")
    assert found.private.words == tmp_path / "words"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("topics = 0", ["topics", "greater than or equal to 1", "streamtopic.toml"]),
        ("topcs = 5", ["topcs", "did you mean `topics`"]),
        ("capacity.shares = 0.1", ["`capacity.shares`", "did you mean `share`?"]),
        ('model = "a b"', ["model", "letters, digits"]),
        ('kafka = "kafka"', ["kafka", "host:port"]),
        ('metrics_address = "here"', ["metrics_address", "`9464`"]),
        ('serve_token = "short"', ["serve_token", "16 characters or more"]),
        ("topics = [", ["streamtopic.toml", "not valid TOML"]),
        ("tolerance = 1e-12", ["tolerance", "0.000000001"]),
        ("[tasks.desk]\nridge = nan", ["`tasks.desk.ridge`"]),
        ("[tasks.desk]\ntopic = ['a']", ["`tasks.desk.topic`", "did you mean `topics`?"]),
        ("[tasks.desk]\ntopics = ['a', 'b', 'a']", ["`tasks.desk`", "two of the topics are the same"]),
        ("[tasks.' desk']\n", ["`tasks. desk`", "printable"]),
        ("[tasks.'']\n", ["1 to 256"]),
        ("topics = 1\nguided.cars = ['car']", ["`guided` names 1 topics", "raise `topics` to 2 or more"]),
        ('publish = "tasks"', ["`publish`", "`tasks` is empty"]),
        ('publish = "heads"', ["`publish`", "'topics' or 'tasks'"]),
    ],
)
def test_an_error_is_one_line_with_the_setting_and_its_source(tmp_path, text, parts):
    """Whoever reads the error knows what to change, and where."""
    with pytest.raises(SettingsError) as caught:
        load(config=_file(tmp_path, text))
    message = str(caught.value)
    assert "\n" not in message.strip()
    assert all(part in message for part in parts), message


def test_secrets_are_not_written(tmp_path):
    """A password in an address stays out of the file of an instance, and nothing takes its place."""
    write(load({"redis_url": "redis://:hunter2@localhost/0", "topics": 5}), tmp_path / "streamtopic.toml")
    assert "hunter2" not in (tmp_path / "streamtopic.toml").read_text()
    assert load(config=tmp_path / "streamtopic.toml") == load({"topics": 5})


def test_secrets_come_from_files(tmp_path, monkeypatch):
    """A folder of files called like the variables is a source, under variables and above the settings file."""
    (tmp_path / "streamtopic_kafka_sasl_password").write_text("hush")
    (tmp_path / "streamtopic_topics").write_text("7")
    (tmp_path / "STREAMTOPIC_OTHER.p12").write_bytes(b"\xff\x00")
    monkeypatch.setenv("STREAMTOPIC_SECRETS_DIR", str(tmp_path))
    settings = load()
    assert settings.kafka_sasl_password.get_secret_value() == "hush"
    assert settings.topics == 7
    monkeypatch.setenv("STREAMTOPIC_TOPICS", "9")
    assert load().topics == 9
    (tmp_path / "streamtopic_epsilon").write_text("much")
    with pytest.raises(SettingsError, match=r"`epsilon` .file streamtopic_epsilon in the folder"):
        load()
    monkeypatch.setenv("STREAMTOPIC_SECRETS_DIR", str(tmp_path / "none"))
    with pytest.raises(SettingsError, match="STREAMTOPIC_SECRETS_DIR"):
        load()


TASKS = '[tasks.desk]\ntopics = ["goal", "court"]\ntau = 1e-9\n\n[tasks."mood of the day"]\n'


def test_tasks_come_from_every_source_alike(tmp_path, monkeypatch):
    """Tables in a file, JSON in a variable and after --set mean the same tasks."""
    in_json = '{"desk": {"topics": ["goal", "court"], "tau": 1e-9}, "mood of the day": {}}'
    from_file = load(config=_file(tmp_path, TASKS)).tasks
    monkeypatch.setenv("STREAMTOPIC_TASKS", in_json)
    assert from_file == load().tasks == load({"tasks": in_json}).tasks
    assert list(from_file) == ["desk", "mood of the day"]
    assert from_file["desk"].topics == ("goal", "court")
    assert from_file["desk"].tau == 1e-9
    assert from_file["mood of the day"] == type(from_file["desk"])()


def test_an_entry_of_a_table_is_json_in_a_variable_and_a_flag(monkeypatch):
    """One guided topic, one task: a variable or a flag of its own, beside those of other sources."""
    flags = {"guided.sport": '["goal", "match"]', "tasks.section": '{"ridge": 0.001}'}
    by_flags = load(flags)
    monkeypatch.setenv("STREAMTOPIC_GUIDED__SPORT", '["goal", "match"]')
    monkeypatch.setenv("STREAMTOPIC_TASKS__SECTION", '{"ridge": 0.001}')
    found = load()
    assert found == by_flags
    assert found.guided == {"sport": ("goal", "match")}
    assert found.tasks["section"].ridge == 0.001


def test_a_field_of_a_table_is_set_alike_in_every_source(tmp_path, monkeypatch):
    """A file, a variable and --set each give one field, and leave the others of the table to weaker sources."""
    path = _file(tmp_path, "[capacity]\nrule = 'fixed'\ndocuments = 5\nshare = 0.5\n")
    monkeypatch.setenv("STREAMTOPIC_CAPACITY__DOCUMENTS", "6")
    monkeypatch.setenv("STREAMTOPIC_PRIVATE__VERSIONS", "7")
    found = load({"capacity.share": "0.25"}, config=path)
    assert (found.capacity.rule, found.capacity.documents, found.capacity.share) == ("fixed", 6, 0.25)
    assert found.private.versions == 7
    write(found, tmp_path / "again.toml")
    monkeypatch.undo()
    assert load(config=tmp_path / "again.toml") == found
    monkeypatch.setenv("STREAMTOPIC_CAPACITY__DOCUMENTS", "many")
    with pytest.raises(SettingsError, match=r"`capacity.documents` .variable STREAMTOPIC_CAPACITY__DOCUMENTS."):
        load()
    with pytest.raises(SettingsError, match="the whole of `capacity` is given too"):
        load({"capacity": "{}", "capacity.share": "0.25"})
    monkeypatch.setenv("STREAMTOPIC_CAPACITY", "{}")
    with pytest.raises(SettingsError, match="variable STREAMTOPIC_CAPACITY__DOCUMENTS: the whole of `capacity` is"):
        load()


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ({"learner": "default"}, ["guarantee", "learner", '"paper"']),
        ({"epsilon": 1.0}, ["guarantee", "epsilon", "below 1"]),
        ({"publish": "tasks", "tasks": '{"section": {}}'}, ["guarantee", "publish", '"topics"']),
        ({"theorem.separability": 1.5}, ["`theorem.separability`", "less than or equal to 1"]),
        ({"theorem.constant": "inf"}, ["`theorem.constant`", "finite"]),
    ],
)
def test_what_the_theorem_does_not_speak_of_is_refused_with_a_remedy(more, parts):
    """Theorem mode without what its proof needs is refused when settings are read, by the setting to change."""
    proved = {"guarantee": "theorem", "learner": "paper", "epsilon": 0.5}
    assert load(proved).guarantee == "theorem"
    with pytest.raises(SettingsError) as caught:
        load(proved | more)
    assert all(part in str(caught.value) for part in parts), str(caught.value)
