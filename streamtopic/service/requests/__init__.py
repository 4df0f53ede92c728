"""Requests for deletions: taken in, approved, sent, looked up, and undone."""
