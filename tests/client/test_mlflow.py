"""Models and releases in MLflow: saved, logged, registered, read again, and called as functions of texts."""

import dataclasses
import json
import sys

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from streamtopic import AnchorTopics, TextCounts, TextTopics
from streamtopic.client import ModelSubscriber
from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.mlflow import load_model, log_model, save_model
from streamtopic.signed import Head, Payload, SigningKey, open_release, seal_release, to_messages
from streamtopic.streams import FileLog

WITHOUT = "mlflow-skinny and pandas take 150 MB, so the extra `test` leaves them out: pip install 'streamtopic[mlflow]'"
CARS = ["car engine wheel road", "wheel road car brake", "engine brake car"] * 30
PETS = ["cat dog fur paw", "dog paw cat tail", "fur tail cat"] * 30
TEXTS = [*CARS, *PETS]


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """The real MLflow, with a registry in a folder of this test."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "registry").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    found = pytest.importorskip("mlflow", reason=WITHOUT)
    pytest.importorskip("mlflow.pyfunc", reason=WITHOUT)
    return found


@pytest.fixture
def model():
    """Two topics of texts."""
    return TextTopics(2, max_df=1.0).fit(TEXTS)


@pytest.fixture
def release(make, key):
    """A version as `open_release` gives it, with a head."""
    payload, envelope = make()
    head = Head(("w00001", "w00000"), ("no", "yes"), 9, w=np.array([[1.0, -1.0], [-2.0, 2.0]]))
    data = seal_release(dataclasses.replace(payload, heads={"desk": head}), envelope, key)
    return open_release(data, key.public)


def test_a_model_of_texts_goes_on_with_the_same_bits(mlflow, model, tmp_path):
    """What was saved infers, forgets and learns as the model that was given, and the description says what it holds."""
    save_model(model, tmp_path / "saved", metadata={"owner": "desk"})
    again = load_model(tmp_path / "saved")
    assert type(again) is TextTopics
    for one in (again, model):
        one.unlearn(TEXTS[:4]).partial_fit(["tram rail car"])
    assert again.components_.tobytes() == model.components_.tobytes()
    described = mlflow.models.Model.load(tmp_path / "saved")
    facts = described.metadata["streamtopic"]
    assert described.metadata["owner"] == "desk"
    assert (facts["kind"], facts["documents"], facts["holds_documents"]) == ("TextTopics", 180, True)
    assert 0 < facts["certificate"] < 1e-6
    wanted = (tmp_path / "saved" / "requirements.txt").read_text("utf-8")
    assert "streamtopic[mlflow]==" in wanted


@pytest.mark.parametrize("form", ["list", "series", "frame", "array"])
def test_the_function_takes_texts_in_each_form_of_mlflow(mlflow, model, tmp_path, form):
    """Shares are those of the model itself, bit for bit."""
    pandas = pytest.importorskip("pandas", reason=WITHOUT)
    save_model(model, tmp_path / "saved")
    texts = ["a car on the road", "dog and cat"]
    forms = {"list": list, "series": pandas.Series, "array": lambda given: np.array(given, object)}
    given = forms.get(form, lambda given: pandas.DataFrame({"text": given}))(texts)
    function = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    assert function.predict(given).tobytes() == model.transform(texts).tobytes()
    assert type(function.get_raw_model()) is TextTopics


@pytest.mark.parametrize("form", [np.array, csr_matrix], ids=["dense", "sparse"])
def test_a_model_of_counts_takes_counts(mlflow, tmp_path, form):
    """An AnchorTopics stays one, also where its columns are words, and takes rows of counts, dense and sparse."""
    counts = np.asarray(TextCounts().fit_transform(TEXTS).todense(), np.int64)
    model = AnchorTopics(2, max_df=1.0).fit(counts)
    save_model(model, tmp_path / "saved")
    assert type(load_model(tmp_path / "saved")) is AnchorTopics
    given = form(counts[:7])
    function = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    assert function.predict(given).tobytes() == model.transform(given).tobytes()
    with pytest.raises(mlflow.exceptions.MlflowException, match="does not match expected shape"):
        function.predict(counts[:7, 1:])


def test_versions_in_a_registry_are_loaded_by_their_address(mlflow, model, tmp_path):
    """Two versions of a registered model are told apart, and the later one does not hold what was forgotten between."""
    first = log_model(model, "topics", registered_model_name="news")
    log_model(model.unlearn(CARS[:6]), "topics", registered_model_name="news")
    assert first.signature.inputs is not None
    before, after = (load_model(f"models:/news/{number}") for number in (1, 2))
    assert (before.n_documents_, after.n_documents_) == (180, 174)
    function = mlflow.pyfunc.load_model("models:/news/2")
    assert function.predict(TEXTS[:3]).tobytes() == model.transform(TEXTS[:3]).tobytes()
    assert function.metadata.metadata["streamtopic"]["documents"] == 174


def test_a_release_of_a_subscriber_keeps_its_guarantee(mlflow, make, key, tmp_path):
    """A version is read with its signature and numbers of topics, and its promise stands where a registry shows it."""
    log = FileLog(tmp_path / "log")
    log.create("news.releases", 1)
    payload, envelope = make(version=2)
    turned = dataclasses.replace(payload, A=payload.A[:, ::-1], top_words=payload.top_words[::-1])
    for number, one in ((1, payload), (2, turned)):
        signed = seal_release(one, dataclasses.replace(envelope, version=number, parent=number - 1), key)
        log.append_many("news.releases", to_messages(number, signed))
    with ModelSubscriber(log, model="news", public_key=key.public, match_topics=True, idle_seconds=0) as subscriber:
        *_, newest = subscriber
    assert newest.order == (1, 0)
    info = log_model(newest, "topics", public_key=key.public)
    again = load_model(info.model_uri, public_key=key.public)
    assert again.signed() == newest.signed()
    assert again.A.tobytes() == newest.A.tobytes()
    texts = ["w00001 w00002", "w00003"]
    function = mlflow.pyfunc.load_model(info.model_uri)
    assert function.predict(texts).tobytes() == newest.transform(texts).tobytes()
    facts = info.metadata["streamtopic"]
    assert (facts["version"], facts["epsilon"], facts["delta"]) == (2, 1.0, 1e-6)
    assert (facts["key"], facts["digest"]) == (key.public.key_id, newest.digest)
    assert facts["holds_documents"] is False
    assert "unlearning is not privacy" in facts["limit"]


def test_a_function_of_a_release_classifies(mlflow, release, key, tmp_path):
    """With the parameter `task` it gives the class of each text, also where topics are withheld."""
    hidden = Payload(release.words, heads={"desk": Head(("w00001",), ("a", "b"), 7, B=np.eye(6, 2, dtype=np.float32))})
    sealed = open_release(seal_release(hidden, release.envelope, key), key.public)
    texts = ["w00001 w00001", "w00000", "nothing"]
    for name, one in (("shown", release), ("hidden", sealed)):
        save_model(one, tmp_path / name, public_key=key.public)
        function = mlflow.pyfunc.load_model(str(tmp_path / name))
        assert function.predict(texts, params={"task": "desk"}) == one.classify(texts, "desk")
    with pytest.raises(InvalidRelease, match="withholds its topics"):
        function.predict(texts)


def test_only_a_release_that_stands_and_verifies_is_saved(mlflow, release, key, tmp_path):
    """A withdrawn version, one without a key and one of another key are refused, and no folder is made."""
    gone = dataclasses.replace(release, is_withdrawn=lambda _: True)
    for one, keys, error, said in (
        (gone, key.public, InvalidRelease, "withdrawn"),
        (release, None, UsageError, "give public_key"),
        (release, SigningKey.generate().public, InvalidRelease, "key"),
        ("a text", None, UsageError, "not an AnchorTopics"),
    ):
        with pytest.raises(error, match=said):
            save_model(one, tmp_path / "saved", public_key=keys)
    assert not (tmp_path / "saved").exists()


def test_what_was_changed_in_the_folder_is_refused(mlflow, release, key, tmp_path):
    """Bytes of a release are verified each time; the user's own key tells whether the key beside them was replaced."""
    save_model(release, tmp_path / "saved", public_key=key.public)
    data = tmp_path / "saved" / "data" / "streamtopic"
    other = SigningKey.generate()
    (data / "signed.release").write_bytes(seal_release(release.payload, release.envelope, other))
    with pytest.raises(InvalidRelease):
        mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    (data / "signing.pub").write_bytes(other.public.pem)
    assert load_model(tmp_path / "saved").version == release.version
    with pytest.raises(InvalidRelease):
        load_model(tmp_path / "saved", public_key=key.public)
    (data / "order.json").write_text(json.dumps([0, 0]), encoding="utf-8")
    with pytest.raises(UsageError, match="does not number the topics"):
        load_model(tmp_path / "saved")
    (data / "signed.release").unlink()
    with pytest.raises(UsageError, match="does not hold a whole model"):
        load_model(tmp_path / "saved")


def test_models_of_other_flavours_are_named(mlflow, tmp_path):
    """A folder that another flavour wrote says which program reads it."""
    mlflow.pyfunc.save_model(path=str(tmp_path / "other"), loader_module="json", pip_requirements=[])
    with pytest.raises(UsageError, match=r"was not saved by streamtopic\.mlflow"):
        load_model(tmp_path / "other")


def test_without_mlflow_the_error_names_the_extra(model, tmp_path, monkeypatch):
    """The module itself can be imported anywhere; its use says what to install."""
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UsageError, match=r"pip install 'streamtopic\[mlflow\]'"):
        save_model(model, tmp_path / "saved")
