"""Every setting: its name, default, range and description."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from streamtopic.settings.tasks import Tasks  # noqa: TC001  pydantic reads it

__all__ = ["FILE_NAME", "PATHS", "PREFIX", "SECRETS", "Settings"]

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
    max_partition_words: int = Field(
        2_000_000,
        ge=1_000,
        le=1 << 25,
        description="Distinct words of live documents that a partition holds; a document that would bring more is "
        "rejected (`partition-words`).",
    )
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
    capacity: Literal["share", "fixed", "theorem", "calibrated"] = Field(
        "share",
        description="Rule of the deletion capacity: a share of the base, a number, the paper's formula, or what trials "
        "at each retrain show.",
    )
    capacity_share: Share = Field(0.01, description="Deletion capacity under `share`, of the base model's documents.")
    capacity_fixed: int = Field(100, ge=0, le=10**12, description="Deletion capacity under `fixed`, in documents.")
    capacity_constant: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="The constant c of the formula under `theorem`."
    )
    capacity_forget_sets: Literal["any", "random"] = Field(
        "any",
        description="Forget sets that `calibrated` tries: random ones and such as aim at a topic, or random ones only.",
    )
    capacity_updates: int = Field(
        100, ge=1, le=100_000, description="Most updates that `calibrated` tries at a retrain; each costs one update."
    )
    tasks: Tasks = Field(
        {},
        description="Downstream tasks, a table each: `[tasks.NAME]` with `topics` (anchor words; none: all), `ridge` "
        "(1e-9), `tolerance` (1e-4), `tau` (0); as JSON in variables and `--set`.",
    )
    publish: Literal["topics", "tasks"] = Field(
        "topics", description="`topics`: the model with a head for each task; `tasks`: the heads alone, noised."
    )
    guarantee: Literal["certified", "theorem"] = Field(
        "certified",
        description="`certified`, or `theorem`: Algorithm 1 of the paper with its noise, under the paper's conditions; "
        "needs `learner` paper, `epsilon` below 1, `publish` topics.",
    )
    theorem_constant: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="The constant c of the sensitivity under `guarantee` theorem; the paper gives none.",
    )
    accuracy: float | None = Field(
        None,
        gt=0,
        le=1,
        description="eps0 under `guarantee` theorem: error of the base model's entries; by default 1/sqrt(n r).",
    )
    imbalance: float | None = Field(
        None,
        ge=1,
        allow_inf_nan=False,
        description="a under `guarantee` theorem: share of the most frequent topic over that of the rarest; by default "
        "estimated.",
    )
    conditioning: float | None = Field(
        None,
        gt=0,
        le=1,
        description="gamma under `guarantee` theorem: condition of the topics' covariance; by default estimated.",
    )
    separability: float | None = Field(
        None,
        gt=0,
        le=1,
        description="p under `guarantee` theorem: least probability of an anchor word in its topic; by default "
        "estimated.",
    )
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
