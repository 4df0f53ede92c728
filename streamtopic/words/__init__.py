"""Texts to words, and words to numbers.

text     splits a text into the words that are counted
lexicon  a hash table of words that compiled loops read and fill
"""
