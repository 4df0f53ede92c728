"""Settings of the program: flags over `STREAMTOPIC_*` variables over a TOML file over the defaults below.

`load` is the only way in. Every error is one line that names the setting, where its value came from and the remedy.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from streamtopic.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

__all__ = ["FILE_NAME", "Settings", "load", "write"]

FILE_NAME = "streamtopic.toml"
PREFIX = "STREAMTOPIC_"
SECRETS = "STREAMTOPIC_SECRETS_DIR"
"""Variable that names a folder of files, each called like a variable and holding its value: secrets of containers."""


PATHS = (
    "dir",
    "signing_key",
    "noise_key",
    "receipt_key",
    "public_key",
    "kafka_ssl_cafile",
    "kafka_ssl_certfile",
    "kafka_ssl_keyfile",
)


def _expand(path: Path) -> Path:
    return path.expanduser()


UserPath = Annotated[Path, AfterValidator(_expand)]
Share = Annotated[float, Field(gt=0, le=1)]


class Settings(BaseSettings):
    """All settings, validated. Field descriptions are the reference in docs/settings.md (a test compares them)."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    model: str = Field(
        "default",
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
    kafka_ssl_cafile: UserPath | None = Field(None, description="Certificate authority that Kafka's certificate is of.")
    kafka_ssl_certfile: UserPath | None = Field(None, description="Own certificate, where Kafka asks for one.")
    kafka_ssl_keyfile: UserPath | None = Field(None, description="Private key of the own certificate.")
    group: str | None = Field(
        None, description="Consumer group of the ingest processes; by default `streamtopic-MODEL`."
    )
    session_timeout: float = Field(
        45.0,
        ge=6,
        le=1800,
        description="Seconds until Kafka gives the partitions of a silent ingest process to others.",
    )
    lease: float = Field(
        30.0, ge=1, le=3600, description="Seconds until another scheduler takes over from one that is silent."
    )
    stalled_after: float = Field(
        60.0,
        gt=0,
        description="Seconds without progress after which `status` calls a partition with waiting records stalled.",
    )
    linger: float = Field(0.1, ge=0, le=60, description="Seconds that ingest waits for more records to commit at once.")
    heartbeat: float = Field(
        43_200.0,
        ge=0,
        description="Seconds between the records that keep an idle partition's compaction going; 0: none.",
    )
    max_compaction_lag: float = Field(
        86_400.0, gt=0, description="Seconds after which a deleted document's text has left the log, on Kafka."
    )
    delete_retention: float = Field(
        30 * 86_400.0,
        gt=0,
        description="Seconds that a delete stays in the compacted log; ingest may be away for half of it.",
    )
    keep_versions: int = Field(
        100, ge=1, description="Published versions that stay in the log; older ones are erased, withdrawn ones at once."
    )
    partitions: int = Field(
        1, ge=1, le=1024, description="Partitions of the documents topic; fixed when a model is created."
    )
    topics: int = Field(20, ge=1, le=1000, description="Number of topics to learn.")
    learner: Literal["default", "paper"] = Field(
        "default", description="`default`, or `paper` (Arora et al. 2013); fixed when a model is created."
    )
    min_df: int = Field(5, ge=1, description="A word counts once this many documents hold it.")
    max_df: Share = Field(
        0.05, description="Words in a greater share of documents are left out (never fewer than 20 documents)."
    )
    anchor_min_df: Share = Field(
        0.01, description="An anchor word is in at least this share of documents (at least 2)."
    )
    max_words: int = Field(20_000, ge=10, description="The most frequent words kept in the vocabulary.")
    tolerance: float = Field(
        1e-7,
        ge=1e-9,
        le=1e-2,
        description="Bound that a certificate must reach before an unlearned model is published.",
    )
    epsilon: float = Field(
        1.0, gt=0, le=100, description="Indistinguishability of one release from a retraining: epsilon."
    )
    delta: float = Field(
        1e-6, gt=0, lt=0.1, description="Indistinguishability of one release from a retraining: delta."
    )
    epsilon_budget: float = Field(
        8.0,
        gt=0,
        description="Cumulative epsilon since the base model; a release that would pass it is a retrain instead.",
    )
    max_forget_lag: float = Field(
        3600.0, ge=0, description="Seconds that a deletion may wait for a version without it."
    )
    unlearn_at: Share = Field(0.8, description="Share of the deletion capacity at which an update is made at once.")
    batch: Share = Field(0.1, description="Share of the deletion capacity that makes an update beyond `unlearn_at`.")
    update_after: Share = Field(0.05, description="New documents, as a share of the model's, that make an update.")
    capacity: Literal["share", "fixed", "theorem"] = Field(
        "share", description="Rule of the deletion capacity: a share of the base, a number, or the paper's formula."
    )
    capacity_share: Share = Field(0.01, description="Deletion capacity under `share`, of the base model's documents.")
    capacity_fixed: int = Field(100, ge=0, description="Deletion capacity under `fixed`, in documents.")
    capacity_constant: float = Field(1.0, gt=0, description="The constant c of the formula under `theorem`.")
    signing_key: UserPath | None = Field(
        None, description="Ed25519 private key (PEM); by default `keys/signing.pem` in `dir`."
    )
    noise_key: UserPath | None = Field(
        None, description="Secret that noise is drawn from; by default `keys/noise.key` in `dir`."
    )
    receipt_key: UserPath | None = Field(
        None, description="Secret that receipts digest document ids with; by default `keys/receipt.key` in `dir`."
    )
    public_key: UserPath | None = Field(
        None, description="Public key that releases and receipts verify with; by default that of the signing key."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then variables, then files of secrets, then the file."""
        return init_settings, env_settings, file_secret_settings, TomlConfigSettingsSource(settings_cls)

    @property
    def consumer_group(self) -> str:
        """The consumer group of the ingest processes."""
        return self.group or f"streamtopic-{self.model}"

    @property
    def cap(self) -> int:
        """The cap of the document mass f(L) = min(L, cap) that belongs to the learner."""
        return 1 if self.learner == "paper" else 256


def load(flags: Mapping[str, Any] | None = None, *, config: Path | None = None) -> Settings:
    """Return the settings from all sources.

    `flags` maps setting names to values; None means "not given". A `dir`, from a flag or `STREAMTOPIC_DIR`, stands
    for its own `streamtopic.toml` where there is one, unless `config` names a file. Paths in a file are relative to it.
    Raises `SettingsError`.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    directory = given.get("dir") or os.environ.get(f"{PREFIX}DIR")
    if config is None and directory and (own := Path(directory).expanduser() / FILE_NAME).is_file():
        config = own
    file_values = _read(config) if config is not None else {}
    _refuse_unknown(file_values, str(config))
    _refuse_unknown(given, "--set")

    secrets = os.environ.get(SECRETS)
    if secrets and not Path(secrets).is_dir():
        raise SettingsError(f"variable {SECRETS} names {secrets}, which is no folder: correct or remove it")

    class Loaded(Settings):
        model_config = SettingsConfigDict(toml_file=config, secrets_dir=secrets or None)

    try:
        settings = Loaded(**given)
    except ValidationError as error:
        raise SettingsError(_explain(error.errors()[0], given, config)) from None
    values = {name: getattr(settings, name) for name in Settings.model_fields}
    from_file = {name for name in file_values if name not in given and not os.environ.get(PREFIX + name.upper())}
    for name in PATHS:
        if name in from_file and config is not None and values[name] is not None:
            values[name] = config.parent / values[name]
    return Settings.model_construct(**values)


def write(settings: Settings, path: Path) -> None:
    """Write the settings that differ from the defaults as TOML; `dir` and secrets are left out."""
    lines = ["# Written by streamtopic; see docs/settings.md for every setting."]
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        if name != "dir" and value != field.default and not isinstance(value, SecretStr):
            lines.append(f"{name} = {_toml(value)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _toml(value: object) -> str:
    # JSON's strings and numbers are TOML's as well.
    return json.dumps(str(value) if isinstance(value, Path) else value)


def _read(path: Path) -> dict[str, Any]:
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


def _refuse_unknown(values: Mapping[str, Any], where: str) -> None:
    for name in values:
        if name not in Settings.model_fields:
            close = difflib.get_close_matches(name, Settings.model_fields, n=1)
            remedy = f"did you mean `{close[0]}`?" if close else "docs/settings.md lists all settings"
            raise SettingsError(f"unknown setting `{name}` in {where}: {remedy}")


def _explain(error: ErrorDetails, given: Mapping[str, Any], config: Path | None) -> str:
    name = str(error["loc"][0]) if error["loc"] else "?"
    variable = PREFIX + name.upper()
    if name in given:
        source = f"flag --{name.replace('_', '-')}"
    elif variable in os.environ:
        source = f"variable {variable}"
    else:
        source = f"file {config}"
    message = error["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return f"setting `{name}` ({source}): {message}; docs/settings.md says what it may be"
