"""From counts to a version that waits to be published.

    scheduler    the steps: decide, model, stage; the lease, counts in Redis, the record of a version
    situation    the state of the model in Redis
    decide       the next action, a pure function of the situation
    modeller     a mode that makes models, its base model, and certified mode
    payload      a model's bytes: noise, topics, heads of downstream tasks

Other modes, and the measure of a deletion capacity, are handed in from outside.
"""
