"""The life of a model outside its flow.

backup          keys and Redis in one file, and back
backup_archive  the form of that file, which a passphrase opens
rebuild_state   the state made anew from the log
upgrade_state   the layout of the state, raised by one or taken back
key_lists       key lists, signed and published
model_removal   the end of a model, with a last signed statement
"""
