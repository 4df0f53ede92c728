"""Ingest, scheduler, publisher, and the process that runs them."""
