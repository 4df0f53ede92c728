"""Requests for deletions, from the wish of a person to the receipt.

request_door        takes them in; people approve or cancel them here, and find one with its receipts and traces
request_mover       moves each on: the brake, the tombstones, the completion
"""
