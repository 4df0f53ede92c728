"""Other topic models beside ours, on the same tokens and judged by the same scorer.

material    documents as counts, and the vocabulary rules offered to every model
models      the models, all behind one small interface
score       NPMI, diversity, and accuracy of a classifier on topic proportions
"""
