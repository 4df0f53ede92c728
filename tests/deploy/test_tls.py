"""TLS that fails: each fault is told with its remedy, soon, and without a password."""

import logging
from contextlib import closing

import pytest

from certificates import issue
from servers.redis_cluster import RedisNode
from streamtopic.errors import SettingsError
from streamtopic.state import Connection
from streamtopic.streams.kafka_log import KafkaLog

pytestmark = pytest.mark.slow

NOBODY = {"sasl_mechanism": None, "sasl_username": None, "sasl_password": None}
UNKNOWN, EXPIRED = "not signed by an authority known here", "has expired.*renew it"
ELSEWHERE = "is for another host.*use a name"
PASSWORD = "PASSWORD7"


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """The certificate of an authority that nobody knows."""
    return issue(tmp_path_factory.mktemp("stranger"), "nobody").with_name("ca.pem")


@pytest.fixture
def refused(caplog):
    """Return a function: the error of an act names the fault, and nothing says the password, at any level."""
    caplog.set_level(logging.DEBUG)

    def check(act, match, secret=PASSWORD):
        with pytest.raises(SettingsError, match=match) as found:
            act()
        assert secret not in str(found.value)
        assert secret not in caplog.text

    return check


def _acts(options):
    """What every part of the log does first."""

    def asks():
        with KafkaLog(options) as log:
            log.partitions("news.documents")

    def joins():
        with KafkaLog(options) as log:
            membership = log.join("news.documents", "streamtopic-news", 6_000)
            try:
                membership.poll(60)
            finally:
                membership.leave()

    return asks, joins


@pytest.mark.parametrize(
    ("fault", "match"),
    [
        ("authority", UNKNOWN),
        ("EXPIRED", EXPIRED),
        ("ELSEWHERE", ELSEWHERE),
        ("plain", "speaks TLS and this client does not.*SASL_SSL"),
        ("password", "refuses this user.*kafka_sasl_password"),
        ("user", "refuses this user.*kafka_sasl_username"),
        ("file", "not in PEM form"),
    ],
)
def test_a_fault_between_client_and_kafka_is_told(deployed_kafka, stranger, refused, tmp_path, fault, match):
    """A matter of settings, for a command that asks and for a member of the group."""
    (tmp_path / "file.pem").write_text("no certificate")
    wrong = {
        "authority": {"ssl_cafile": str(stranger)},
        "plain": {"security_protocol": "SASL_PLAINTEXT", "ssl_cafile": None},
        "password": {"sasl_password": PASSWORD},
        "user": {"sasl_username": "nobody"},
        "file": {"ssl_cafile": str(tmp_path / "file.pem")},
    }
    door = {"servers": deployed_kafka.doors.get(fault), "security_protocol": "SSL", **NOBODY}
    # Some faults are told only once the patience has ended.
    options = deployed_kafka.options("ingest", patience=20, **wrong.get(fault, door))
    secret = options.sasl_password or PASSWORD
    for act in _acts(options):
        refused(act, match, secret=secret)


@pytest.mark.usefixtures("tls_server")
@pytest.mark.parametrize(
    ("hosts", "days", "match"),
    [(["127.0.0.1"], -1, EXPIRED), (["elsewhere.example"], 1, ELSEWHERE)],
    ids=["expired", "elsewhere"],
)
def test_a_certificate_of_redis_that_is_wrong_is_told(refused, tmp_path, hosts, days, match):
    """Expired, or for another host: the password is not sent to such a server."""
    certificate = issue(tmp_path / "tls", "redis", *hosts, days=days)
    users = tmp_path / "users.acl"
    users.write_text(f"user default off\nuser me on >{PASSWORD} ~* +@all\n")
    options = {"bind": "127.0.0.1", "aclfile": users}
    node = RedisNode(tmp_path / "redis", options, certificate=certificate)
    url = f"rediss://me:{PASSWORD}@{node.place}/0?ssl_ca_certs={certificate.with_name('ca.pem')}"
    with closing(node.start()), Connection(url, timeout=60) as connection:
        refused(connection.ping, match)
