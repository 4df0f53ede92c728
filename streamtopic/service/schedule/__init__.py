"""From counts to a version that waits to be published.

    scheduler  the steps: decide, model, stage; one leader at a time
    situation  where the model stands in Redis
    decide     the next action, a pure function of the situation
    modeller   the protocol of a mode that makes models, and certified mode
    payload    a model's bytes: noise, topics, heads of downstream tasks
    version    the envelope, record, ledger entry and messages of a version
    lease      leadership, renewed while a model is learned

Other modes, and the measure of a deletion capacity, are handed in from outside.
"""
