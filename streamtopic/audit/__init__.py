"""The attack on the promise: how well could somebody tell that a document had been there?

    attack              the whole audit; its parts are the other two
    chosen_documents    documents made to be hard to forget, learned and unlearned
    games               noise drawn again and again, and lower bounds on epsilon from the draws

AuditPlan     how much is drawn
AuditResult   what `streamtopic.audit.attack.audit` found
"""

from streamtopic.audit.attack import AuditPlan, AuditResult

__all__ = [
    "AuditPlan",
    "AuditResult",
]
