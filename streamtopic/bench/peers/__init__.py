"""Other topic models and ours, on the same tokens and judged by the same scorer.

material    documents as counts, and the vocabulary rules offered to every model
models      the models, all with one small interface
cost        processor time, memory, and what changing a model by some documents takes
score       NPMI, diversity, and accuracy of a classifier on topic proportions
shown       models side by side, as a table
"""
