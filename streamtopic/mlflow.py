"""MLflow's flavour of streamtopic: models and releases in MLflow's folders and registry, and as functions of texts.

    import streamtopic.mlflow

    streamtopic.mlflow.log_model(model, name="topics", registered_model_name="news")
    streamtopic.mlflow.load_model("models:/news/1").unlearn(texts)
    mlflow.pyfunc.load_model("models:/news/1").predict(texts)

An AnchorTopics or a TextTopics is kept as its own file, which runs no code when it is read. The file holds the
documents as word counts, and versions in a registry stay: after an `unlearn`, save the model again and delete the older
versions.

A release is kept as the bytes that its service signed, and holds no document. Its version, guarantee and key stand in
the metadata of the model. MLflow does not hear of a withdrawal, so a copy serves until you delete it.

MLflow is imported on first use (`pip install 'streamtopic[mlflow]'`).
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.errors import UsageError
from streamtopic.signed import KeyRing, PublicKey, Release, open_release
from streamtopic.text_topics import TextTopics
from streamtopic.topics.estimator import AnchorTopics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["load_model", "log_model", "save_model"]

FLAVOUR = "streamtopic"
# Where MLflow puts the folder that it is given, and the files in it. The name of an estimator's file names its class.
_DATA = f"data/{FLAVOUR}"
_RELEASE = "signed.release"
_KEY = "signing.pub"
_ORDER = "order.json"
_ESTIMATORS = {f"{kind.__name__}.safetensors": kind for kind in (TextTopics, AnchorTopics)}

Kept = AnchorTopics | Release
Keys = KeyRing | PublicKey | str | bytes | Path


def save_model(
    model: Kept,
    path: str | Path,
    *,
    public_key: Keys | None = None,
    mlflow_model: Any = None,  # noqa: ANN401  mlflow.models.Model
    metadata: Mapping[str, Any] | None = None,
    signature: Any = None,  # noqa: ANN401  mlflow.models.ModelSignature
    pip_requirements: Sequence[str] | None = None,
) -> None:
    """Write a model or a release to a new folder, in the flavours `streamtopic` and `python_function`.

    model: a fitted AnchorTopics or TextTopics, or a release that a ModelSubscriber gave out or `open_release` opened.
    public_key: of a release's service, as `KeyRing.load` takes it. The one key that signed is kept beside the release.
    mlflow_model: MLflow's own description, which `log_model` brings.
    metadata: more facts for the description.
    signature: of the function, in place of the usual one. A model of counts takes (documents, words) of int64.
    pip_requirements: in place of this version of streamtopic with its extra `mlflow`.

    The function gives topic proportions, (texts, n_topics), and for a release with the parameter `task` the class of
    each text. Raises UsageError for other models, and for a release without its key; InvalidRelease for a release that
    is withdrawn, or that the key did not sign; MlflowException where the folder is there already.
    """
    pyfunc, models = _mlflow()
    described = models.Model() if mlflow_model is None else mlflow_model
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / FLAVOUR
        data.mkdir()
        facts = _written(model, data, public_key)
        # As an argument of `pyfunc.save_model` it would have MLflow warn that there is no example of the input.
        described.signature = signature or _signature(model)
        program = version("streamtopic")
        described.add_flavor(FLAVOUR, data=_DATA, streamtopic_version=program, **facts)
        earlier, given = described.metadata or {}, metadata or {}
        pyfunc.save_model(
            path=str(path),
            loader_module=__name__,
            data_path=str(data),
            mlflow_model=described,
            pip_requirements=pip_requirements or [f"streamtopic[mlflow]=={program}"],
            metadata={**earlier, "streamtopic": facts, **given},
        )


def log_model(model: Kept, name: str, **options: Any) -> Any:  # noqa: ANN401  both are MLflow's
    """Keep a model or a release under the current run, and return MLflow's ModelInfo.

    name: of the logged model.
    options: of `save_model`, and of `mlflow.models.Model.log`, such as registered_model_name, run_id, tags.

    Raises as `save_model`.
    """
    _, models = _mlflow()
    return models.Model.log(artifact_path=None, name=name, flavor=sys.modules[__name__], model=model, **options)


def load_model(model_uri: str | Path, *, public_key: Keys | None = None) -> Kept:
    """Return what was saved: an AnchorTopics, a TextTopics or a Release. It goes on with the same bits.

    model_uri: a folder, or an address such as models:/news/1 or runs:/RUN/topics.
    public_key: of a release's service, as `KeyRing.load` takes it. Without it the key beside the release is taken,
        which whoever can write to the folder can replace.

    Raises UsageError for a model of another flavour, or a damaged one; InvalidRelease for a release that the key did
    not sign.
    """
    _, models = _mlflow()
    from mlflow.artifacts import download_artifacts

    folder = Path(download_artifacts(artifact_uri=str(model_uri)))
    flavour = models.Model.load(str(folder)).flavors.get(FLAVOUR)
    if flavour is None:
        raise UsageError(f"{model_uri} was not saved by streamtopic.mlflow: load it with the flavour that saved it")
    return _read(folder / flavour["data"], public_key)


def _mlflow() -> tuple[Any, Any]:
    """Return MLflow's modules `pyfunc` and `models`. Raises UsageError where they are not installed."""
    try:
        from mlflow import models, pyfunc
    except ImportError as error:
        raise UsageError(f"{__name__} needs {error.name}: pip install 'streamtopic[mlflow]'") from None
    return pyfunc, models


def _written(model: object, folder: Path, public_key: Keys | None) -> dict[str, Any]:
    """Write a model to its files, and return the facts about it. Raises as `save_model`."""
    if isinstance(model, Release):
        return _write_release(model, folder, public_key)
    for name, kind in _ESTIMATORS.items():
        if isinstance(model, kind):
            return _write_estimator(model, folder, name)
    raise UsageError(f"a {type(model).__name__} is not an AnchorTopics, a TextTopics or a Release")


def _write_estimator(model: AnchorTopics, folder: Path, name: str) -> dict[str, Any]:
    model.save(folder / name)
    return {
        "kind": name.partition(".")[0],
        "documents": model.n_documents_,
        "holds_documents": True,
        "topics": len(model.components_),
        "certificate": float(model.certificate_),
    }


def _write_release(release: Release, folder: Path, public_key: Keys | None) -> dict[str, Any]:
    """Write a release with the key that signed it, and return the facts about it."""
    if public_key is None:
        raise UsageError("a release is kept with its service's key: give public_key, as to ModelSubscriber")
    data = release.signed()
    keys = KeyRing.load(public_key, release.envelope.model)
    # Whoever reads the folder must be able to verify it, so it is verified now.
    open_release(data, keys)
    (folder / _RELEASE).write_bytes(data)
    (folder / _KEY).write_bytes(keys.named(release.key).pem)
    if release.order:
        (folder / _ORDER).write_text(json.dumps(release.order), encoding="utf-8")
    return _release_facts(release)


def _release_facts(release: Release) -> dict[str, Any]:
    """Return what a reader of the registry has to know of a release, as JSON has it: None for what is unbounded."""
    promise = release.guarantee
    envelope = release.envelope
    numbers = {
        "epsilon": promise.epsilon,
        "delta": promise.delta,
        "cumulative_epsilon": promise.cumulative_epsilon,
        "certificate": promise.certificate,
    }
    bounded = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    return {
        "kind": "Release",
        "model": envelope.model,
        "version": release.version,
        "documents": envelope.m,
        "holds_documents": False,
        "topics": 0 if release.payload.A is None else envelope.r,
        "tasks": list(release.heads),
        "guarantee": promise.kind,
        **bounded,
        "forgotten": promise.forgotten,
        "withdraws": list(envelope.withdrawn),
        "key": release.key,
        "digest": release.digest,
        "limit": promise.limit,
    }


def _read(folder: Path, public_key: Keys | None = None) -> Kept:
    """Return the model in a folder that `save_model` wrote. Raises as `load_model`."""
    for name, kind in _ESTIMATORS.items():
        if (folder / name).exists():
            return kind.load(folder / name)
    try:
        key = (folder / _KEY).read_bytes() if public_key is None else public_key
        data = (folder / _RELEASE).read_bytes()
    except OSError as error:
        raise UsageError(f"{folder} does not hold a whole model ({error.strerror}): save the model again") from error
    # A ring knows which keys of a list are revoked. A single key has no list.
    known = key if isinstance(key, KeyRing) else PublicKey.load(key)
    release = open_release(data, known)
    order = folder / _ORDER
    return replace(release, order=_order(order, release)) if order.exists() else release


def _order(path: Path, release: Release) -> tuple[int, ...]:
    """Return the column of A for each topic, as the release had it when it was saved."""
    found = json.loads(path.read_bytes())
    columns = list(range(release.envelope.r))
    # The file is not signed, and a column may be neither missing nor named twice.
    if not isinstance(found, list) or sorted(found, key=str) != sorted(columns, key=str):
        raise UsageError(f"{path} does not number the topics of its release: save the model again")
    return tuple(found)


def _signature(model: Kept) -> Any:  # noqa: ANN401  mlflow.models.ModelSignature
    """Return what the function takes and gives."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec

    texts = Schema([ColSpec(DataType.string)])
    if not isinstance(model, Release):
        inputs = texts
        if not isinstance(model, TextTopics):
            counts = TensorSpec(np.dtype(np.int64), (-1, model.n_features_in_))
            inputs = Schema([counts])
        return ModelSignature(inputs, _shares(len(model.components_)))
    params = ParamSchema([ParamSpec("task", DataType.string, "")])
    # Where topics are withheld, the classes of a task are all that the function gives.
    outputs = texts if model.payload.A is None else _shares(model.envelope.r)
    return ModelSignature(texts, outputs, params)


def _shares(topics: int) -> Any:  # noqa: ANN401  mlflow.types.Schema
    from mlflow.types import Schema, TensorSpec

    return Schema([TensorSpec(np.dtype(np.float64), (-1, topics))])


def _load_pyfunc(data_path: str) -> _Function:
    """Return the function of a saved model. `mlflow.pyfunc.load_model` calls it."""
    return _Function(_read(Path(data_path)))


class _Function:
    """What MLflow calls with data of any form that it knows.

    model: as it was saved.
    """

    def __init__(self, model: Kept) -> None:
        self.model = model

    def get_raw_model(self) -> Kept:
        """Return the model itself. `PyFuncModel.get_raw_model` gives it to its user."""
        return self.model

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401  MLflow's types
        """Return topic proportions, (texts, n_topics); with the parameter `task`, the class of each text.

        model_input: texts in a list, or in the one column of a frame; counts (documents, words) for a model of counts.
        """
        if isinstance(self.model, Release):
            task = (params or {}).get("task")
            texts = _texts(model_input)
            return self.model.classify(texts, task) if task else self.model.transform(texts)
        takes_texts = isinstance(self.model, TextTopics)
        return self.model.transform(_texts(model_input) if takes_texts else model_input)


def _texts(model_input: Any) -> list[str]:  # noqa: ANN401  as above
    """Return the texts in a list or in a frame of one column. Raises UsageError for a frame of several columns."""
    if not hasattr(model_input, "columns"):
        return list(model_input)
    if len(model_input.columns) != 1:
        raise UsageError(f"the texts are to be one column, and there are {len(model_input.columns)}")
    texts: list[str] = model_input.iloc[:, 0].tolist()
    return texts
