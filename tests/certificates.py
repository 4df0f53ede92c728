"""Certificates that deploy/certificate.sh makes, also those that have ended."""

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "deploy" / "certificate.sh"


def issue(folder, name, *hosts, days=825):
    """Write `NAME.pem`, a new key with its certificate for these hosts, and return its path.

    folder: of the authority, whose certificate is `ca.pem`; it is made if there is none. days: below 0, it has ended.
    """
    script = SCRIPT.read_text("utf-8").replace("-days 825", f"-days {days}")
    subprocess.run(["/bin/sh", "-c", script, "sh", str(folder), name, *hosts], check=True, capture_output=True)
    return folder / f"{name}.pem"
