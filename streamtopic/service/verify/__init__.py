"""What an auditor gets about one version: facts, who vouches for each, and how to check them.

gather             all of it, as values that JSON has
release_findings   what can be checked about a version at once
relearned          what counting and learning again has found
read_audit         the result of `streamtopic audit`, to go with it
Finding            one thing that was checked
"""

from streamtopic.service.verify.audit_results import Audited, read_audit
from streamtopic.service.verify.evidence import gather, release_findings
from streamtopic.service.verify.finding import Finding, as_json, passed, relearned

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
