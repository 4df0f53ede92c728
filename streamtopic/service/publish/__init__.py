"""Publish staged versions, receipts and statements, and remove the traces that deletions leave."""
