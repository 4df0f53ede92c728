"""Verification: an auditor gets the facts about one version, the grounds of each, and the steps to check them.

gather             all evidence about a version, as JSON values
release_findings   checks of a version that do not count or learn again
relearned          findings of counting and learning again
read_audit         reads the result of `streamtopic audit`, to go with the evidence (Audited)
Finding            one check and its outcome (passed: of several; as_json)
"""

from streamtopic.service.verify.evidence import gather, release_findings
from streamtopic.service.verify.finding import Audited, Finding, as_json, passed, read_audit, relearned

__all__ = [
    "Audited",
    "Finding",
    "as_json",
    "gather",
    "passed",
    "read_audit",
    "relearned",
    "release_findings",
]
