"""Build the image of deploy/Containerfile, start it, and ask it for its version, for `doctor` and for every page.

Before that, each Python that the project supports must find wheels of everything that the image installs.

    python .ci/image.py FOLDER

It needs root, Debian's packages buildah, mmdebstrap and redis-server, and the packages of the extra `test`. All that
it makes is in FOLDER. CI reaches no registry of images, so the base is made here: Debian with a Python of its own in
/usr/local, as the image `python` has it.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from streamtopic.local import LocalKafka

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
DEADLINE = 600.0
LIST = "import importlib.metadata as m\nfor d in m.distributions(): print(d.name, d.version)"
WORDS = ("apple banana cherry damson elder", "iron copper silver gold tin")


# Wheels are built for the C library of their time; these are the tags that a slim image of today takes.
PLATFORMS = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (17, 27, 28)] + ["--platform=manylinux2014_x86_64"]


def main(folder: Path) -> None:
    """Build and ask. Raises CalledProcessError or AssertionError for what does not work."""
    _find_wheels(folder / "wheels")
    buildah = ["buildah", "--root", str(folder / "images"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"]
    _make_base(buildah, folder / "base.tar")
    build = ["build", "--isolation", "chroot", "--build-arg", "BASE=localhost/base", "--tag", "localhost/streamtopic"]
    _run([*buildah, *build, "--file", "deploy/Containerfile", "."])
    container = _output([*buildah, "from", "--pull-never", "localhost/streamtopic"])
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        data.chmod(0o777)
        redis = stack.enter_context(_redis(data))
        kafka = stack.enter_context(LocalKafka())
        given = {"kafka": kafka.servers, "redis_url": redis, "model": "image", "partitions": 2, "topics": 2}
        given |= {"min_df": 1, "max_df": 1.0, "keys": "/data/keys"}
        settings = [f"STREAMTOPIC_{name.upper()}={value}" for name, value in given.items()]
        mount = ["--volume", f"{data}:/data"]
        program = [*buildah, "run", "--isolation", "chroot", *mount, container, "env", *settings, "streamtopic"]
        _ask(program, data)
    print("the image is built, runs, and shows its pages")


def _find_wheels(folder: Path) -> None:
    """Nothing is compiled at an installation, on any Python that the project names."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    versions = [name for one in classifiers if re.fullmatch(r"3\.\d+", name := one.rpartition(" :: ")[2])]
    assert len(versions) >= 2
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--require-hashes", "--only-binary=:all:"]
    for version in versions:
        of_version = [f"--python-version={version}", "--implementation=cp", *PLATFORMS, "--target", str(folder)]
        _run([*pip, *of_version, "-r", str(ROOT / "deploy" / "requirements.lock")])


def _make_base(buildah: list[str], tar: Path) -> None:
    venv = 'chroot "$1" python3 -m venv /usr/local'
    hooks = [f"copy-in {CERTIFICATES} {Path(CERTIFICATES).parent}", venv]
    options = ["--variant=minbase", "--include=python3-venv,ca-certificates", "--aptopt=APT::Install-Recommends false"]
    _run(["mmdebstrap", *options, *(f"--customize-hook={hook}" for hook in hooks), "bookworm", str(tar)])
    container = _output([*buildah, "from", "scratch"])
    _run([*buildah, "add", "--quiet", container, str(tar), "/"])
    _run([*buildah, "commit", "--quiet", container, "localhost/base"])
    _run([*buildah, "rm", container])
    tar.unlink()


def _ask(program: list[str], data: Path) -> None:
    """Ask for the version, run a service until it has published a model, and look at it from all sides."""
    assert _output([*program, "--version"]) == f"streamtopic {VERSION}"
    _look_at_packages(_output([*program[:-1], "python", "-c", LIST]))
    documents = [{"id": f"d{n}", "text": " ".join(WORDS[n % 2].split()[k] for k in range(4))} for n in range(60)]
    (data / "documents.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    for words in (["keys", "new", "--to", "/data/keys"], ["init"], ["add", "/data/documents.jsonl"]):
        _run([*program, *words])
    with _background([*program, "run", "--json"]):
        _await(lambda: json.loads(_output([*program, "versions", "--json"]))["versions"], "version")
        _run([*program, "doctor"])
        port = _free_port()
        with _background([*program, "serve", "--port", str(port)]):
            place = f"http://127.0.0.1:{port}"
            _await(lambda: _page(f"{place}/"), "page of the server")
            pages = set(re.findall(r'href="(/[a-z]+)"', _page(f"{place}/")))
            assert {"/versions", "/deletions", "/rejected"} <= pages
            assert all("<h1" in _page(f"{place}{page}") for page in sorted(pages))


def _look_at_packages(said: str) -> None:
    """Take the locked packages alone: nothing that builds or installs is in the image."""
    found = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in map(str.split, said.splitlines())}
    locked = re.findall(r"^(\S+)==(\S+)", (ROOT / "deploy" / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    assert found.pop("streamtopic") == VERSION
    assert found.items() <= set(locked), found.items() - set(locked)
    assert not {"pip", "setuptools", "hatchling"} & found.keys()


@contextmanager
def _redis(folder: Path) -> Iterator[str]:
    """A server that forgets everything, on a port of its own; its address."""
    port = _free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with _background(["redis-server", *options, "--maxmemory-policy", "noeviction", "--appendonly", "yes"]):
        _await(lambda: socket.create_connection(("127.0.0.1", port)).close() is None, "Redis")
        yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def _background(command: list[str]) -> Iterator[None]:
    """A program in a group of its own, which ends with the block: buildah passes no signal on."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await(look: Callable[[], object], what: str) -> object:
    """Return the first answer that is not empty. Raises AssertionError after ten minutes."""
    deadline = time.monotonic() + DEADLINE
    while True:
        with suppress(OSError):
            if found := look():
                return found
        assert time.monotonic() < deadline, f"no {what} within {DEADLINE:.0f} s"
        time.sleep(0.5)


def _page(address: str) -> str:
    with urlopen(address, timeout=60) as answer:
        return answer.read().decode()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, cwd=ROOT)


def _output(command: list[str]) -> str:
    done = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
