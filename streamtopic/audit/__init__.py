"""The attack on the promise: how well could somebody tell that a document had been there?

    attack              the whole audit, made of the next two files
    chosen_documents    documents made to be hard to forget, learned and unlearned
    games               noise drawn again and again, and lower bounds on epsilon from the draws
    subtraction         the attack of somebody who holds the versions before and after a deletion

AuditPlan     the number of draws
AuditResult   the findings of `streamtopic.audit.attack.audit`
"""

from streamtopic.audit.attack import AuditPlan, AuditResult

__all__ = [
    "AuditPlan",
    "AuditResult",
]
