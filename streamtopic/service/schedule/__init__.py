"""From counts to a version that waits to be published.

    scheduler    the steps: decide, model, stage; and the lease of the one leader
    situation    the state of the model in Redis
    decide       the next action, a pure function of the situation
    modeller     the protocol of a mode that makes models, and certified mode
    payload      a model's bytes: noise, topics, heads of downstream tasks
    version      the envelope, record and messages of a version
    keep_counts  the co-occurrence counts in Redis, written and carried on, so that a leader that starts need not count

Other modes, and the measure of a deletion capacity, are handed in from outside.
"""
