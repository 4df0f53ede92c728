"""From Redis to topics, and the traces that are left.

publisher         one round of all that is due: versions, receipts, withdrawals, `alive`
ledger_writer     the ledger, followed by its index and written by the order of its topic
witnesses         others who sign that the ledger only grew
erasure           traces of deletions, removed and noted until they are gone
published         the releases topic read back, and its versions as JSON
"""
