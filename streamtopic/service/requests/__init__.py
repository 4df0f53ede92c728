"""Requests for deletions, from the wish of a person to the receipt.

request_door        takes them in; people approve or cancel them here
request_mover       moves each on: the brake, the tombstones, the completion
labelled_deletions  finds the documents of a label
deletion_lookup     shows one deletion, with its receipts and traces
"""
