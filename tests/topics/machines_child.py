"""Fit and update a corpus and write what came of it, in a process whose BLAS is chosen from outside.

    python machines_child.py CORPUS TARGET [TEXTS]

CORPUS: mirrored, or docstrings read as JSON lists of texts from TEXTS; TARGET: an .npz of A, and words, anchors,
sets, certificates and coefficients of each fit.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

from streamtopic.bench.chain_corpora import cyclic_images
from streamtopic.bench.chains import described
from streamtopic.counts import Counts, DocumentBatch, Passage, count
from streamtopic.service.verify.recount import batch_of
from streamtopic.topics.display import WordEvidence, coefficients
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.update import update
from streamtopic.words.text import passages

STEPS = 4


def mirrored():
    """Two subjects that are images of each other, with words between them: names, documents, options."""
    rng = np.random.default_rng(5)
    columns = np.zeros(2 * (60 + 10) + 20)
    columns[0], columns[1:60], columns[120:] = 0.3, 0.5 * rng.dirichlet(np.geomspace(1.0, 0.1, 59)), 0.2 / 40
    images = cyclic_images(rng, 2, rng.multinomial(40, columns / columns.sum(), 200), 60, 10)
    documents = []
    for held in images.reshape(-1, images.shape[2]):
        words = np.flatnonzero(held)
        documents.append([Passage(int(held.sum()), words.astype(np.int32), held[words].astype(np.int32))])
    names = [f"w{k:03d}" for k in range(images.shape[2])]
    return names, DocumentBatch.build(documents), {"n_topics": 2, "max_df": 1.0, "min_df": 3}


def texts(path):
    """Return texts of a file: names, documents, options."""
    read = json.loads(Path(path).read_text(encoding="utf-8"))
    return *batch_of(tuple(passages(text)) for text in read), {"n_topics": 8, "max_candidates": 400}


def fits(names, batch, given, learner):
    """Yield a cold fit and its counts, and the same after each of some deletions of two documents."""
    options = LearnerOptions(learner=learner, **given)
    counts = Counts(names, count(batch, len(names), options.weighting))
    fit = learn(counts, options)
    yield fit, counts
    # The same documents on every machine, pairs of images where documents are mirrored.
    for pair in np.random.default_rng(6).permutation(batch.documents // 2)[:STEPS]:
        gone = batch.take(np.array([2 * pair, 2 * pair + 1], np.intp))
        part = count(gone, len(names), options.weighting, np.full(2, -1, np.int64))
        counts = Counts(names, counts.cooccurrence + part)
        outcome = update(fit, counts, Counts(names, part))
        fit = outcome if isinstance(outcome, TopicFit) else learn(counts, options)
        yield fit, counts


def shown(fit, counts):
    """Return a digest of the coefficients that order shown words, of one A wherever this runs."""
    published = np.rint(fit.A * 2.0**20) / 2.0**20
    frequency = counts.frequency[np.searchsorted(np.array(counts.words), np.array(fit.words))]
    return hashlib.sha256(coefficients(published, WordEvidence.of(fit, frequency)).tobytes()).hexdigest()


def main(corpus, target, *given):
    """Write A of every fit, its words, anchors, sets and certificates, and the BLAS that was in use."""
    names, batch, options = mirrored() if corpus == "mirrored" else texts(*given)
    found, decided = {}, {}
    for learner in ("default", "paper"):
        for step, (fit, counts) in enumerate(fits(names, batch, options, learner)):
            model = described(fit)
            found[f"{learner}-{step}"] = model.A
            bounds = fit.certificate.bound.hex(), fit.certificate.from_products.hex()
            sets = sorted(model.sets.items())
            decided[f"{learner}-{step}"] = [model.words, model.anchors, sets, bounds, shown(fit, counts)]
    blas = sorted({info["architecture"] for info in threadpool_info() if info["internal_api"] == "openblas"})
    threads = sorted({info["num_threads"] for info in threadpool_info() if info["internal_api"] == "openblas"})
    np.savez(target, **found, decided=json.dumps(decided), blas=blas, threads=threads)


if __name__ == "__main__":
    main(*sys.argv[1:])
