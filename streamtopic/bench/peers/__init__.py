"""Other topic models and ours, on the same tokens and judged by the same scorer.

material    documents as counts, and the words that models are given
models      the models, all with one small interface
cost        processor time, memory, and what changing a model by some documents takes
score       NPMI, diversity, and accuracy of a classifier on topic proportions
"""
