"""Servers and credentials of a Kafka cluster."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamtopic.errors import SettingsError

__all__ = ["SERVERS", "KafkaOptions"]

# host:port, one or several; a host may be an IPv6 address in brackets.
SERVER = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}"
SERVERS = re.compile(rf"{SERVER}(?:,{SERVER})*\Z")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class _Concealed(str):
    """A password that is shown as three stars: kafka-python logs all of its configuration at level DEBUG."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Servers and credentials of a cluster. The password is never printed.

    servers: `host:port`, several with commas.
    security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    sasl_mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
    sasl_username, sasl_password: of the user; only with a SASL protocol.
    ssl_cafile, ssl_certfile, ssl_keyfile: paths of PEM files.
    patience: seconds for which a call is repeated while no broker answers.

    Raises SettingsError for options that cannot work together.
    """

    servers: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_cafile: str | Path | None = None
    ssl_certfile: str | Path | None = None
    ssl_keyfile: str | Path | None = None
    patience: float = 30.0

    def __post_init__(self) -> None:
        if not SERVERS.match(self.servers):
            raise SettingsError(f"Kafka servers {self.servers!r} are not usable: give host:port, several with commas")
        if self.security_protocol not in PROTOCOLS:
            raise SettingsError(
                f"Kafka security protocol {self.security_protocol!r} is unknown: choose one of {', '.join(PROTOCOLS)}"
            )
        if not self.security_protocol.startswith("SASL_"):
            # They would not be sent, and nobody would notice.
            if self.sasl_mechanism or self.sasl_username or self.sasl_password:
                raise SettingsError(
                    "a Kafka user or password is sent only with security protocol SASL_SSL or SASL_PLAINTEXT: set one "
                    "of them, or leave the user out"
                )
        elif self.sasl_mechanism not in MECHANISMS or not self.sasl_username or not self.sasl_password:
            raise SettingsError(
                f"{self.security_protocol} needs a SASL mechanism ({', '.join(MECHANISMS)}), a user name and a password"
            )

    def client(self) -> dict[str, Any]:
        """Return the arguments that every client of kafka-python takes. Raises SettingsError for a missing file."""
        for path in (self.ssl_cafile, self.ssl_certfile, self.ssl_keyfile):
            if path is not None and not Path(path).is_file():
                raise SettingsError(f"there is no file {path}: correct the Kafka setting that names it")
        arguments = {
            "bootstrap_servers": self.servers.split(","),
            "client_id": "streamtopic",
            "security_protocol": self.security_protocol,
            "sasl_mechanism": self.sasl_mechanism,
            "sasl_plain_username": self.sasl_username,
            "sasl_plain_password": None if self.sasl_password is None else _Concealed(self.sasl_password),
            "ssl_cafile": self.ssl_cafile,
            "ssl_certfile": self.ssl_certfile,
            "ssl_keyfile": self.ssl_keyfile,
        }
        return {name: value for name, value in arguments.items() if value is not None}
