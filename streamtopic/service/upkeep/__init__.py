"""The life of a model outside its flow.

rebuild_state  the state made again from the log
key_lists      key lists, signed and written to the ledger
model_removal  the end of a model, and of its ledger
"""
