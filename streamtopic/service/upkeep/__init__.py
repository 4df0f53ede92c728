"""The life of a model outside its flow.

backup          keys and Redis in one file, and back
backup_archive  the form of that file, a tar with digests
rebuild_state   the state made anew from the log
key_lists       key lists, signed and written to the ledger
model_removal   the end of a model, and of its ledger
"""
