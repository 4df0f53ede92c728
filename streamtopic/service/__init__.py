"""Ingest, scheduler and publisher, and the processes that run them."""
