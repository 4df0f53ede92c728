"""Verification: an auditor gets the facts about one version, the grounds of each, and the steps to check them.

verify_instance    every check: ledger, recount of the log, models learned again, a version
gather             all evidence about a version, as JSON values
Finding            one check and its outcome (passed: of several; as_json)
read_audit         reads the result of `streamtopic audit`, to go with the evidence (Audited)
"""

from streamtopic.service.verify.evidence import gather, verify_instance
from streamtopic.service.verify.finding import Audited, Finding, as_json, passed, read_audit

__all__ = [
    "Audited",
    "Finding",
    "as_json",
    "gather",
    "passed",
    "read_audit",
    "verify_instance",
]
