"""Verification: an auditor gets the facts about one version, the grounds of each, and the steps to check them.

verify_instance    every check: ledger, recount of the log, models learned again, a version
gather             all evidence about a version, as JSON values
Finding            one check and its outcome (passed: of several; as_json)
"""

from streamtopic.service.finding import Finding, as_json, passed
from streamtopic.service.verify.evidence import gather, verify_instance

__all__ = [
    "Finding",
    "as_json",
    "gather",
    "passed",
    "verify_instance",
]
