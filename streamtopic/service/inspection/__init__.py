"""What can be known of a service. Nothing here changes one.

facts    the facts of a running model: for its status, for its metrics, and for who judges them
doctor   the judgement of them, and the doctor's look at keys, Redis and the log; each finding has its remedy
"""
