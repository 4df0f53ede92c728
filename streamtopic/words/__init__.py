"""Texts to words, and words to numbers."""
