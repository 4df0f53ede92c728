"""From counts to a version that waits to be published.

    scheduler    the steps: decide, model, stage; the lease of the one leader, and the counts that it keeps in Redis
    situation    the state of the model in Redis
    decide       the next action, a pure function of the situation
    modeller     the protocol of a mode that makes models, and certified mode
    payload      a model's bytes: noise, topics, heads of downstream tasks
    version      the envelope, record and messages of a version

Other modes, and the measure of a deletion capacity, are handed in from outside.
"""
