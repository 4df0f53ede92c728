"""Topics in MLflow: a model is saved, loaded as a function of texts, forgets, and is saved again.

pip install mlflow-skinny pandas
python docs/examples/mlflow_model.py models
"""

import sys
import tempfile
from pathlib import Path

import mlflow.pyfunc
import numpy as np
from mlflow.pyfunc import PythonModel, PythonModelContext

from streamtopic import TextTopics

CARS = ["car engine wheel road", "wheel road car brake", "engine brake car"] * 30
PETS = ["cat dog fur paw", "dog paw cat tail", "fur tail cat"] * 30


class Topics(PythonModel):
    """A saved TextTopics. MLflow pickles this class; the model is in its own file, which holds arrays and no code."""

    def load_context(self, context: PythonModelContext) -> None:
        """Read the model's own file."""
        self.topics = TextTopics.load(context.artifacts["model"])

    def predict(self, model_input: list[str]) -> np.ndarray:
        """Topic proportions of texts, (texts, n_topics)."""
        return self.topics.transform(model_input)


def save(model: TextTopics, folder: Path) -> None:
    """Write a model as MLflow's own folder. `mlflow.pyfunc.log_model` takes the same, but a name for the path."""
    with tempfile.TemporaryDirectory() as own:
        path = Path(own) / "model.safetensors"
        model.save(path)
        mlflow.pyfunc.save_model(path=folder, python_model=Topics(), artifacts={"model": str(path)})


def main() -> None:
    """Save, load, compare bits, forget, and save what is left."""
    folder = Path(sys.argv[1])
    model = TextTopics(2, max_df=1.0).fit(CARS + PETS)
    save(model, folder / "before")
    texts = ["a car on the road", "dog and cat"]
    theta = mlflow.pyfunc.load_model(str(folder / "before")).predict(texts)
    print("same bits after loading:", theta.tobytes() == model.transform(texts).tobytes())

    model.unlearn(CARS[:6])
    save(model, folder / "after")
    again = mlflow.pyfunc.load_model(str(folder / "after")).unwrap_python_model().topics
    print("documents after forgetting:", again.n_documents_)
    print("same bits after forgetting:", again.components_.tobytes() == model.components_.tobytes())


if __name__ == "__main__":
    main()
