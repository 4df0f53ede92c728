"""What an auditor gets about one version: facts, who vouches for each, and how to check them.

gather             all of it, as values that JSON has
release_findings   what can be checked about a version at once
relearned          what counting and learning again has found
page               the evidence as one page of HTML that needs nothing else
reopen             a report read back from its file, to be checked by a public key alone
read_audit         the result of `streamtopic audit`, to go with it
Finding            one thing that was checked
"""

from streamtopic.service.evidence.audits import Audited, read_audit
from streamtopic.service.evidence.finding import Finding, as_json, passed, relearned
from streamtopic.service.evidence.gathering import gather, release_findings
from streamtopic.service.evidence.page import page
from streamtopic.service.evidence.reopening import Reopened, reopen

__all__ = [
    "Audited",
    "Finding",
    "Reopened",
    "as_json",
    "gather",
    "page",
    "passed",
    "read_audit",
    "relearned",
    "release_findings",
    "reopen",
]
