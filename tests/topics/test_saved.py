"""A saved model is learned again from its documents, and a file that is not a whole model is refused."""

import json
import resource
import signal

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamtopic import AnchorTopics
from streamtopic.errors import UsageError
from streamtopic.tensors import parts, unpacked
from streamtopic.topics.saved import _FORMAT, _digest

RNG = np.random.default_rng(11)
TOPICS = RNG.dirichlet(np.full(80, 0.05), 4)
X = np.array([RNG.multinomial(30, RNG.dirichlet(np.full(4, 0.1)) @ TOPICS) for _ in range(400)])
SHOWN = ("components_", "topic_shares_", "anchors_", "certificate_", "n_documents_", "topic_names_", "guided_notes_")


def fitted(**options):
    """A model whose vocabulary is all columns."""
    return AnchorTopics(4, min_df=1, min_share=0, max_df=1.0, **options).fit(csr_array(X))


def same_bits(one, other):
    """Assert that two models show the same to the bit."""
    for name in SHOWN:
        left, right = getattr(one, name), getattr(other, name)
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes(), name
    assert one.get_params() == other.get_params()


@pytest.mark.parametrize("options", [{}, {"learner": "paper"}, {"guided": {"mine": [3, 5]}}], ids=str)
def test_a_saved_model_is_that_of_its_documents(tmp_path, options):
    """Saved after an update and read again, a model has the bits of a fit on its documents, and forgets others."""
    model = fitted(**options).unlearn(X[:3])
    model.save(tmp_path / "model.safetensors")
    again = AnchorTopics.load(tmp_path / "model.safetensors")
    same_bits(again, AnchorTopics(**model.get_params()).fit(X[3:]))
    assert again.topics() == model.topics()
    for one in (model, again):
        one.unlearn(X[5:9]).partial_fit(X[:3])
    assert again.topics() == model.topics()
    assert np.abs(again.components_ - model.components_).max() <= again.certificate_ + model.certificate_


def test_excluded_words_are_in_the_file(tmp_path):
    """A model that was saved needs the file of excluded words no more."""
    words = tmp_path / "words.txt"
    words.write_text("w7\n")
    frame = pytest.importorskip("pandas").DataFrame(X, columns=[f"w{k}" for k in range(80)])
    AnchorTopics(4, min_df=1, min_share=0, max_df=1.0, exclude_words=words).fit(frame).save(tmp_path / "m")
    words.unlink()
    assert not AnchorTopics.load(tmp_path / "m").components_[:, 7].any()


def test_files_that_are_no_model_are_refused(tmp_path):
    """Other bytes, another format, a lost array, indices out of range and shapes that differ end in one clear error."""
    path = tmp_path / "m"
    fitted().save(path)
    arrays, _ = unpacked(path.read_bytes())
    (tmp_path / "bytes").write_bytes(path.read_bytes()[:-40])
    wrong = {"none": {}, "format": arrays}
    for name in ("words", "order", "owners"):
        changed = arrays[name].copy()
        changed[0] = 60_000
        wrong[name] = {**arrays, name: changed}
    for name in ("indptr", "counts", "lengths"):
        wrong[name] = {**arrays, name: np.ascontiguousarray(arrays[name][:-1])}
    falling = arrays["indptr"].copy()
    falling[1] = falling[-1]
    wrong["falling"] = {**arrays, "indptr": falling}
    state = json.loads(arrays["state"].tobytes())
    wrong["deep"] = {**arrays, "state": np.frombuffer(b"[" * 100_000, np.uint8)}
    del state["words"]
    wrong["state"] = {**arrays, "state": np.frombuffer(json.dumps(state).encode(), np.uint8)}
    for name, changed in wrong.items():
        texts = {"format": "another" if name == "format" else _FORMAT, "sha256": _digest(changed)}
        (tmp_path / name).write_bytes(b"".join(parts(changed, texts)))
    for name in ("bytes", *wrong):
        with pytest.raises(UsageError, match="save the model"):
            AnchorTopics.load(tmp_path / name)


def test_one_changed_byte_is_noticed(tmp_path):
    """A number that was changed on the disk is still a number: only the digest tells, and it must be there."""
    path = tmp_path / "m"
    model = fitted()
    model.save(path)
    whole = path.read_bytes()
    head = int.from_bytes(whole[:8], "little") + 8
    places = np.random.default_rng(3).integers(head, len(whole), 60)
    for place in places.tolist():
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(UsageError, match="save the model again"):
            AnchorTopics.load(path)
    path.write_bytes(whole)
    arrays, _ = unpacked(whole)
    (tmp_path / "without").write_bytes(b"".join(parts(arrays, {"format": _FORMAT})))
    with pytest.raises(UsageError, match="save the model again"):
        AnchorTopics.load(tmp_path / "without")


def test_a_file_that_cannot_be_written_leaves_the_one_before(tmp_path):
    """A missing folder and a full disk are errors of the system, and no half of a file stays."""
    model = fitted()
    with pytest.raises(FileNotFoundError):
        model.save(tmp_path / "missing" / "model.safetensors")
    target = tmp_path / "model.safetensors"
    model.save(target)
    whole = target.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="cannot be written"):
            model.save(target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert target.read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
