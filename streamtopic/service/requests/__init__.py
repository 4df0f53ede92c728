"""Requests for deletions, from the wish of a person to the receipt.

request_door        takes them in; people approve or cancel them here
request_mover       moves each on: the brake, the tombstones, the completion
deletion_lookup     finds the documents of a label, and one deletion with its receipts and traces
"""
