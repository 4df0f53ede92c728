"""Settings of the program: flags over `STREAMTOPIC_*` variables over a TOML file over the defaults.

Settings   every setting: its name, default, range and description; downstream tasks are tables, `[tasks.NAME]`
load       the only way in; an error is one line with the setting, the source of its value and the remedy
write      settings as a TOML file
"""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from streamtopic.errors import SettingsError
from streamtopic.words.text import TOKENISER, tokenize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic_core import ErrorDetails

__all__ = [
    "FILE_NAME",
    "PREFIX",
    "SECRETS",
    "TABLES",
    "Settings",
    "TaskSettings",
    "Tasks",
    "load",
    "write",
]


FILE_NAME = "streamtopic.toml"
PREFIX = "STREAMTOPIC_"
SECRETS = "STREAMTOPIC_SECRETS_DIR"
"""Variable that names a folder of files, as containers mount secrets: a file has a variable's name and its value."""


def _expand(path: Path) -> Path:
    return path.expanduser()


UserPath = Annotated[Path, AfterValidator(_expand)]
Share = Annotated[float, Field(gt=0, le=1)]


# The limits of documents' labels, as documents/events.py has them (a test compares them). They stand here again because
# settings load before the code of events, and without it.
MAX_LABELS = 64
MAX_LABEL = 256
MAX_SEEDS = 64


class _Table(BaseModel):
    """A table of settings. Inputs are hidden in errors because a value in the wrong place may be a password."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def _decoded(value: object) -> object:
    """Return a value, read from JSON if it is text, as variables and `--set` give it."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f'the value is not JSON such as {{"section": {{}}}} ({error})') from None


class TaskSettings(_Table):
    """One downstream task. Documents with a label of the task's name have a class, and a head learns to predict it."""

    topics: Annotated[tuple[str, ...], BeforeValidator(_decoded)] = Field(
        (), description="Anchor words of the topics that the head rests on; empty: all topics."
    )
    ridge: float = Field(1e-9, ge=1e-18, le=1e6, description="lambda, the strong convexity of the loss.")
    tolerance: float = Field(1e-4, ge=1e-15, le=1e6, description="Bound on the distance of a head from the optimum.")
    tau: float = Field(0.0, ge=0, le=1, description="Loss above the optimum that a head may have, the paper's tau.")

    def model_post_init(self, _context: Any, /) -> None:  # noqa: ANN401  pydantic's signature
        """Refuse a topic that is named twice."""
        if len(set(self.topics)) < len(self.topics):
            raise ValueError("two of the topics are the same: name each anchor word once")


def _name(name: str) -> str:
    """Return the name of a task or a guided topic. Raises ValueError for one that labels of documents cannot have."""
    short = 0 < len(name) <= MAX_LABEL
    if not (short and name.isprintable() and name == name.strip()):
        raise ValueError(
            f"the name of a task or a topic must have 1 to {MAX_LABEL} printable characters, without a blank at either "
            "end"
        )
    return name


def _seeds(seeds: tuple[str, ...]) -> tuple[str, ...]:
    """Return the seeds of a guided topic. Raises ValueError for one that comes twice, or is not a word."""
    if len(set(seeds)) < len(seeds):
        raise ValueError("two of the seeds are the same: name each word once")
    for seed in seeds:
        words = tokenize(seed)
        if words != [seed]:
            meant = f": give {', '.join(words)}" if words else ", and no other word is in it"
            raise ValueError(f"the seed {seed!r} is not a word as the service reads texts{meant}")
    return seeds


TaskName = Annotated[str, AfterValidator(_name)]
Seeds = Annotated[
    tuple[str, ...], BeforeValidator(_decoded), Field(min_length=1, max_length=MAX_SEEDS), AfterValidator(_seeds)
]
Task = Annotated[TaskSettings, BeforeValidator(_decoded)]
Tasks = Annotated[dict[TaskName, Task], BeforeValidator(_decoded), Field(max_length=MAX_LABELS)]
Guided = Annotated[dict[TaskName, Seeds], BeforeValidator(_decoded)]


def _word_list(value: object) -> object:
    """Return the list in JSON, as variables give it, and any other value as it is: a list or a path."""
    return _decoded(value) if isinstance(value, str) and value.lstrip().startswith("[") else value


ExcludedWords = Annotated[tuple[str, ...] | UserPath, BeforeValidator(_word_list)]


class CapacitySettings(_Table):
    """How many deletions a base model bears."""

    rule: Literal["share", "fixed"] = Field(
        "share", description="A share of the base model's documents, or a fixed number."
    )
    share: Share = Field(0.01, description="Under `share`: of the base model's documents.")
    documents: int = Field(100, ge=0, le=10**12, description="Under `fixed`: the number of documents.")


class TheoremSettings(_Table):
    """The constants of the paper's proof. Those that are not set are estimated from the base model."""

    constant: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="c of the sensitivity; the paper does not give it."
    )
    base_error: float | None = Field(
        None, gt=0, le=1, description="eps0: error of the base model's entries; by default 1/sqrt(n r)."
    )
    topic_imbalance: float | None = Field(
        None, ge=1, allow_inf_nan=False, description="a: share of the most frequent topic over that of the rarest."
    )
    topic_condition: float | None = Field(None, gt=0, le=1, description="gamma: condition of the topics' covariance.")
    separability: float | None = Field(
        None, gt=0, le=1, description="p: least probability of an anchor word in its topic."
    )


class PrivateSettings(_Table):
    """The budget of `guarantee` private, and its vocabulary."""

    epsilon: float = Field(
        3.0, gt=0, le=100, description="What all versions of a period together reveal of one document, with `delta`."
    )
    delta: float = Field(1e-6, gt=0, lt=0.1, description="The probability that goes with `epsilon`.")
    versions: int = Field(
        64, ge=1, le=256, description="Versions of a period; then `streamtopic unlearn --retrain` begins another."
    )
    words: UserPath | None = Field(
        None,
        description="File of the vocabulary, a word in each line, taken from public text. Unset: words are chosen from "
        "the documents, within the budget.",
    )
    size: int = Field(2_000, ge=20, le=5_000, description="Most words of the vocabulary: noise grows with its root.")


Capacity = Annotated[CapacitySettings, BeforeValidator(_decoded)]
Theorem = Annotated[TheoremSettings, BeforeValidator(_decoded)]
Private = Annotated[PrivateSettings, BeforeValidator(_decoded)]
TABLES: Mapping[str, type[BaseModel]] = {
    "capacity": CapacitySettings,
    "theorem": TheoremSettings,
    "private": PrivateSettings,
    "tasks": TaskSettings,
}
"""Settings that are tables of fields, with the fields."""


class Settings(_Table):
    """All settings, validated. Field descriptions are the reference in docs/settings.md (a test compares them)."""

    model: str = Field(
        "default",
        # Kafka allows letters, digits and these signs in the names of topics, up to 249 characters.
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$",
        description="Name of the model; part of topic names and of keys in Redis.",
    )
    dir: UserPath | None = Field(None, description="Directory of an embedded instance: event log, Redis data, keys.")
    redis_url: SecretStr | None = Field(
        None,
        description="Redis to use; without it the program starts its own on a unix socket and stops it at the end.",
    )
    kafka: str | None = Field(
        None,
        pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}(,(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5})*$",
        description="Kafka's bootstrap servers, `host:port,host:port`; without it the event log is kept in files.",
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="How to speak to Kafka."
    )
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = Field(
        None, description="How to log in to Kafka."
    )
    kafka_sasl_username: str | None = Field(None, description="User at Kafka.")
    kafka_sasl_password: SecretStr | None = Field(None, description="Password at Kafka.")
    kafka_ssl_cafile: UserPath | None = Field(None, description="Certificate authority of Kafka's certificate.")
    kafka_ssl_certfile: UserPath | None = Field(
        None, description="Own certificate with its private key, one PEM file, if Kafka asks for one."
    )
    session_timeout: float = Field(
        45.0,
        # Brokers refuse others by their own defaults (group.min and group.max.session.timeout.ms).
        ge=6,
        le=1800,
        description="Seconds until Kafka gives the partitions of a silent ingest process to others.",
    )
    lease: float = Field(
        30.0, ge=1, le=3600, description="Seconds until another scheduler takes over from a silent one."
    )
    metrics_address: str | None = Field(
        None,
        pattern=r"^(\[[0-9A-Fa-f:.]+\]:|[A-Za-z0-9._-]+:)?[0-9]{1,5}$",
        description="Where a process of the service answers `/metrics`, `/livez` and `/readyz`, as "
        "`[HOST:]PORT`; without a host only this machine can ask. Unset: nowhere.",
    )
    serve_token: SecretStr | None = Field(
        None,
        min_length=16,
        description="Secret of 16 characters or more that `streamtopic serve` asks for. Unset: this machine alone "
        "reads its pages, and it takes no request for a deletion.",
    )
    hold_seconds: float = Field(
        0.0,
        ge=0,
        le=90 * 86_400,
        description="Seconds that a request for deletions waits before its deletes are sent; it can be cancelled until "
        "then. 0: `streamtopic delete` sends at once.",
    )
    brake_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Requests that together name more than this share of the documents within an hour are "
        "paused until `streamtopic deletions approve`. 0: no brake.",
    )
    delete_retention: float = Field(
        30 * 86_400.0,
        gt=0,
        description="Seconds that a delete stays in the compacted log; ingest may be away for half of it.",
    )
    residue_max_age: float = Field(
        86_400.0,
        ge=0,
        description="Seconds until traces of a deletion are cleared: changes with the document leave Redis in half "
        "of it, and Kafka is told to compact the log within it, or within an hour if that is more.",
    )
    backups_kept: float | None = Field(
        None,
        ge=0,
        description="Seconds until every backup of Redis, of the log and of the instance's folder is destroyed; 0: "
        "you make no backups. Unset: the operator attests it (`streamtopic deletions attest`).",
    )
    keep_versions: int = Field(
        100,
        ge=1,
        description="Published versions that stay in the log; older versions are erased, withdrawn versions at once.",
    )
    partitions: int = Field(
        1, ge=1, le=1024, description="Partitions of the documents topic; fixed when a model is created."
    )
    topics: int = Field(20, ge=1, le=1000, description="Number of topics to learn.")
    guided: Guided = Field(
        {},
        description="Topics that you ask for, of the `topics`: a table `[guided]` with a list of seed words for each "
        'name, `cars = ["car", "engine"]`; in variables as JSON.',
    )
    learner: Literal["default", "paper"] = Field(
        "default", description="`default`, or `paper` (Arora et al. 2013); fixed when a model is created."
    )
    min_df: int = Field(5, ge=1, description="The vocabulary has words that at least this many documents hold.")
    min_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0005, description="And at least this share of documents: rarer words cost much and hardly shape topics."
    )
    max_df: Share = Field(
        0.1,
        description="The vocabulary leaves out words in more than this share of documents (never in fewer than 20 "
        "documents).",
    )
    anchor_min_df: Share = Field(
        0.0075,
        description="An anchor word is in at least this share of documents, and in 20 of them or in 2 %, whichever is "
        "less; with 0 or learner `paper`, in 2 documents.",
    )
    max_words: int = Field(
        20_000, ge=10, description="Size of the vocabulary: where more words pass, the most frequent ones stay."
    )
    exclude_words: ExcludedWords = Field(
        (),
        description="Words that the vocabulary leaves out, a list, or the path of a file with a word on each line; in "
        "variables as JSON or as the path.",
    )
    tokeniser: str = Field(
        TOKENISER,
        pattern=r"^[!-~]([ -~]{0,98}[!-~])?$",
        description="Name of what made words of texts. Set it if producers send `counts` by their own tokeniser: "
        "each version names it.",
    )
    tolerance: float = Field(
        1e-7,
        ge=1e-9,
        le=1e-2,
        description="Bound that a certificate must reach before an unlearned model is published.",
    )
    epsilon: float = Field(
        1.0,
        gt=0,
        le=100,
        description="Unlearning epsilon of one release: bound on how well it can be told from a retraining.",
    )
    delta: float = Field(1e-6, gt=0, lt=0.1, description="Unlearning delta of one release, with `epsilon`.")
    epsilon_budget: float = Field(
        8.0,
        gt=0,
        description="Cumulative unlearning epsilon since the base model; a release that would exceed it is a retrain.",
    )
    max_forget_lag: float = Field(
        3600.0, ge=0, description="Seconds that a deletion may wait for a version without it."
    )
    update_after: Share = Field(0.05, description="New documents, as a share of the model's, that make an update.")
    self_check: Annotated[float, Field(ge=0)] | Literal["off"] = Field(
        43_200.0,
        description="Seconds between two checks of an update, which is learned from the counts alone and compared "
        "before it is published. 0: each version; `off`: none.",
    )
    capacity: Capacity = Field(
        CapacitySettings.model_validate({}), description="Deletion capacity of a base model, a table `[capacity]`."
    )
    tasks: Tasks = Field(
        {},
        description="Downstream tasks, a table `[tasks.NAME]` each; in variables as JSON.",
    )
    publish: Literal["topics", "tasks"] = Field(
        "topics", description="`topics`: the model with a head for each task; `tasks`: the heads alone, noised."
    )
    guarantee: Literal["certified", "theorem", "private"] = Field(
        "certified",
        description="`certified`: as a retraining would be. `private`: versions that cannot be subtracted; needs tens "
        "of thousands of documents, and has no tasks and no guided topics. `theorem`: Algorithm 1 of the paper with "
        "its noise, under the paper's conditions; needs `learner` paper, `epsilon` below 1, `publish` topics.",
    )
    theorem: Theorem = Field(
        TheoremSettings.model_validate({}), description="Constants of `guarantee` theorem, a table `[theorem]`."
    )
    private: Private = Field(
        PrivateSettings.model_validate({}), description="Budget of `guarantee` private, a table `[private]`."
    )
    keys: UserPath | None = Field(
        None,
        description="Folder of keys, by default `keys` in `dir`. `schedule` and `run` need `signing.key`, `noise.key` "
        "and `receipt.key`; `ingest`, `verify`, `rebuild` and whoever suppresses need `suppression.key`, if there is "
        "one; `root.pub` or `signing.pub` verifies the ledger.",
    )
    link_months: int = Field(
        3,
        ge=0,
        le=1200,
        description="Months for which `streamtopic receipt` finds receipts by request id; then the month's key is "
        "destroyed, and only the requester's salt still tells which document a receipt is about.",
    )
    witnesses: UserPath | None = Field(
        None,
        description="File of witnesses who also sign the checkpoints of the ledger, in the form of C2SP's tlog-policy; "
        "by default no witness is asked.",
    )
    require_witnesses: bool = Field(
        False,  # noqa: FBT003 -- pydantic's signature
        description="Whether versions and receipts wait until as many witnesses have signed as `witnesses` asks for.",
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        """Raise SettingsError for settings that are right one by one and wrong together."""
        if self.publish == "tasks" and not self.tasks:
            raise SettingsError(
                "setting `publish` is tasks, but `tasks` is empty: add a task, `[tasks.NAME]`, or publish topics"
            )
        if self.guided and self.learner != "default":
            raise SettingsError(
                "setting `guided`: the learner of the paper has no guided topics: set `learner` to default"
            )
        named = len(self.guided)
        if named >= self.topics:
            raise SettingsError(
                f"setting `guided` names {named} topics, and `topics` is {self.topics}: raise `topics` to {named + 1} "
                "or more, so that some are found"
            )
        if self.guarantee == "theorem":
            _refuse_unproved(self)
        if self.guarantee == "private":
            _refuse_exact(self)
        if self.require_witnesses and self.witnesses is None:
            raise SettingsError("setting `require_witnesses` needs `witnesses`: name the file of the witnesses")
        return self

    @property
    def key_folder(self) -> Path | None:
        """The folder of keys; None for a process of a service without one."""
        return self.dir / "keys" if self.keys is None and self.dir is not None else self.keys

    @property
    def consumer_group(self) -> str:
        """The consumer group of the ingest processes."""
        return f"streamtopic-{self.model}"

    @property
    def budget(self) -> float:
        """The epsilon that versions may spend together: of one base model, or in private mode of one period."""
        return self.private.epsilon if self.guarantee == "private" else self.epsilon_budget

    @property
    def cap(self) -> int:
        """The cap of the document mass f(L) = min(L, cap) that belongs to the learner."""
        return 1 if self.learner == "paper" else 256


_PATHS = tuple(name for name, field in Settings.model_fields.items() if UserPath in get_args(field.annotation))
"""Settings that are paths, which are relative to the file that sets them."""


def load(flags: Mapping[str, Any] | None = None, *, config: Path | None = None) -> Settings:
    """Return the settings from all sources.

    flags: values by the names of settings, `TABLE.FIELD` for a field of a table; None counts as absent.
    config: the TOML file; None for the file `streamtopic.toml` in `dir`, where `dir` comes from a flag or from
        `STREAMTOPIC_DIR`. Paths in a file are relative to it.
    Raises SettingsError.
    """
    given = _nested(flags or {}, "--set")
    directory = given.get("dir") or os.environ.get(f"{PREFIX}DIR")
    if config is None and directory:
        own = Path(directory).expanduser() / FILE_NAME
        # A folder without a file is fine, while a file that somebody names must exist.
        config = own if own.is_file() else None
    in_file = _read(config) if config is not None else {}
    for table, names in ((in_file, _PATHS), (in_file.get("private"), ("words",))):
        for name in names:
            if config is not None and isinstance(table, dict) and isinstance(table.get(name), str):
                table[name] = config.parent / Path(table[name]).expanduser()
    mounted = _mounted()
    sources = (in_file, _variables(mounted, "file"), _variables(os.environ, "variable"), given)
    try:
        return Settings.model_validate(functools.reduce(_merged, sources))
    except ValidationError as error:
        named = {name: f"file {name} in the folder of {SECRETS}" for name in mounted}
        named |= {name: f"variable {name}" for name in os.environ}
        raise SettingsError(_explain(error.errors()[0], given, named, f"file {config}")) from None


def _mounted() -> dict[str, str]:
    """Return the files of the folder of secrets that are called like variables, by their names, with their values."""
    folder = os.environ.get(SECRETS)
    if not folder:
        return {}
    if not Path(folder).is_dir():
        raise SettingsError(f"variable {SECRETS} names {folder}, which is not a folder: correct or remove it")
    files = [path for path in Path(folder).iterdir() if _setting(path.name) and path.is_file()]
    return {path.name: path.read_text(encoding="utf-8").strip() for path in files}


def _variables(found: Mapping[str, str], kind: str) -> dict[str, Any]:
    """Return the values of variables by the names of settings. kind: what they are called in an error.

    Variables that name no setting are ignored, since Kubernetes makes some. Empty ones count as absent: Compose passes
    a variable that is not set as an empty one.
    """
    named = {setting: value for variable, value in found.items() if value and (setting := _setting(variable))}
    return _nested(named, kind)


def _setting(variable: str) -> str:
    """Return the setting, or the field of a table, that a variable names; "" for none."""
    setting = variable.upper().removeprefix(PREFIX).lower().replace("__", ".")
    known = variable.upper().startswith(PREFIX) and setting.partition(".")[0] in Settings.model_fields
    return setting if known else ""


def _nested(flags: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return values by the names of settings. Fields of a table may have been named one by one, `TABLE.FIELD`.

    kind: what gave the values, for an error.
    """
    given: dict[str, Any] = {}
    # The whole of a table comes before its fields.
    for name, value in sorted(flags.items()):
        if value is None:
            continue
        *tables, field = name.split(".")
        place = given
        for table in tables:
            place = place.setdefault(table, {})
            if not isinstance(place, dict):
                written = name if kind == "--set" else PREFIX + name.upper().replace(".", "__")
                raise SettingsError(f"{kind} {written}: the whole of `{table}` is given too; give one of them")
        place[field] = value
    return given


def _merged(weaker: dict[str, Any], stronger: dict[str, Any]) -> dict[str, Any]:
    """Return the values of two sources. Of a table, each field is that of the stronger source that has it."""
    found = dict(weaker)
    for name, value in stronger.items():
        before = found.get(name)
        found[name] = value
        if isinstance(before, dict) and isinstance(value, dict):
            found[name] = _merged(before, value)
    return found


def write(settings: Settings, path: Path) -> None:
    """Write the settings that differ from the defaults as TOML, without `dir` and secrets."""
    hidden = {name for name in Settings.model_fields if isinstance(getattr(settings, name), SecretStr)}
    values = settings.model_dump(mode="json", exclude_defaults=True, exclude={"dir", *hidden})
    lines = ["# Written by streamtopic; see docs/settings.md for every setting.", *_assigned(values)]
    # Private from the beginning: other users could read a file between its making and a later change of its mode.
    path.touch(mode=0o600)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _assigned(values: Mapping[str, Any], table: str = "") -> Iterator[str]:
    """Yield values as lines of TOML. table: the table that they are in, with a dot after it."""
    for name, value in values.items():
        key = table + (name if re.fullmatch("[a-z_]+", name) else _toml(name))
        if isinstance(value, dict) and value:
            yield from _assigned(value, f"{key}.")
        else:
            yield f"{key} = {_toml(value)}"


def _toml(value: object) -> str:
    """Return a value as TOML writes it."""
    # JSON's strings, numbers and lists are valid in TOML too, except for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(path: Path) -> dict[str, Any]:
    """Return the values in a TOML file. Raises SettingsError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise SettingsError(
            f"there is no settings file {path}: check --config, or leave it out for the defaults"
        ) from None
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {path} is not valid TOML: {error}") from None


# Settings with a pattern: what the pattern asks for, in words.
_FORMS = {
    "model": "1 to 100 letters, digits, `_` and `-`, with a letter or a digit first",
    "tokeniser": "1 to 100 characters of ASCII, without a blank at either end",
    "kafka": "host:port, or several with commas: `kafka-1:9092,kafka-2:9092`",
    "metrics_address": "a port, or host:port: `9464` or `0.0.0.0:9464`",
}


def _explain(error: ErrorDetails, given: Mapping[str, Any], named: Mapping[str, str], file: str) -> str:
    """Return the text of a validation error: the setting, its source, the problem and the remedy.

    given: values of the command line. named: of what is named like a variable, how it is called.
    file: how the file of settings is called.
    """
    # A problem inside a table is named by its path, in which pydantic writes "[key]" after the name of a key. Beside
    # tables, pydantic names the kinds of value that a setting could have had.
    inside = error["loc"][0] in {*TABLES, "guided"}
    steps = [str(step) for step in error["loc"][: None if inside else 1] if step != "[key]"]
    # The name of a task may hold control characters.
    path = [step if step.isprintable() else ascii(step) for step in steps]
    name = path[0] if path else "?"
    # A field of a table has a variable of its own, and the table has one for all of them.
    variables = [f"{PREFIX}{'__'.join(path[:depth]).upper()}" for depth in (len(path), 1)]
    by_name = {found.upper(): said for found, said in named.items()}
    source = "command line" if name in given else next((by_name[one] for one in variables if one in by_name), file)
    message = error["msg"].removeprefix("Input ").removeprefix("Value error, ")
    if error["type"] == "string_pattern_mismatch":
        message = f"should be {_FORMS[name]}"
    if error["type"] == "extra_forbidden":
        known = Settings.model_fields if len(path) == 1 else TABLES[name].model_fields
        close = difflib.get_close_matches(path[-1], known, n=1)
        message = f"it is unknown: did you mean `{close[0]}`?" if close else "it is unknown"
    # A secret is a value to pydantic, which counts its characters as items.
    if error["type"] == "too_short" and error["ctx"]["field_type"] == "Value":
        message = f"should have {error['ctx']['min_length']} characters or more"
    place = ".".join(path) or name
    return f"setting `{place}` ({source}): {message}; docs/settings.md describes it"


def _refuse_unproved(settings: Settings) -> None:
    """Raise SettingsError for settings that the paper's proof does not cover."""
    name = "setting `guarantee`: the theorem"
    if settings.learner != "paper":
        raise SettingsError(f'{name} is about the paper\'s learner: set `learner` to "paper" when the model is created')
    # The classic Gaussian mechanism, which Algorithm 1 uses, is proved for these alone.
    if not settings.epsilon < 1:
        raise SettingsError(
            f"{name}'s noise is proved for epsilon below 1, and `epsilon` is {settings.epsilon:g}: lower it, to 0.5 say"
        )
    if settings.publish != "topics":
        raise SettingsError(f'{name} releases topics: set `publish` to "topics", or `guarantee` to "certified"')


def _refuse_exact(settings: Settings) -> None:
    """Raise SettingsError for settings that need exact counts where private mode has noised ones."""
    name = "setting `guarantee`: private mode"
    if settings.tasks:
        raise SettingsError(f"{name} has no noise for heads of tasks: remove `tasks`, or take another guarantee")
    if settings.guided:
        raise SettingsError(f"{name} finds its topics in noised counts: remove `guided`, or take another guarantee")
    if settings.learner != "default":
        raise SettingsError(f"{name} is for the default learner: set `learner` to default when the model is created")
