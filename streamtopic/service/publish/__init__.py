"""From the outbox to topics, and the traces that are left behind.

publisher         releases, receipts and completions, and the statement of the newest version
subject_receipts  receipts that cover all documents of a subject
erasure           traces of deletions, removed and noted until they are gone
published         the releases topic read back, and its versions as JSON
"""
