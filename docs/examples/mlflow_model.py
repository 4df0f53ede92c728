"""Topics in MLflow: a model is registered, loaded as a function of texts, forgets, and is registered again.

pip install 'streamtopic[mlflow]'
MLFLOW_TRACKING_URI=http://127.0.0.1:5000 python docs/examples/mlflow_model.py
"""

import mlflow.pyfunc

import streamtopic.mlflow
from streamtopic import TextTopics

CARS = ["car engine wheel road", "wheel road car brake", "engine brake car"] * 30
PETS = ["cat dog fur paw", "dog paw cat tail", "fur tail cat"] * 30
TEXTS = ["a car on the road", "dog and cat"]


def main() -> None:
    """Register, compare bits, forget, and register what is left."""
    model = TextTopics(2, max_df=1.0).fit(CARS + PETS)
    before = streamtopic.mlflow.log_model(model, "topics", registered_model_name="news")
    shares = mlflow.pyfunc.load_model(before.model_uri).predict(TEXTS)
    print("same bits after loading:", shares.tobytes() == model.transform(TEXTS).tobytes())

    model.unlearn(CARS[:6])
    after = streamtopic.mlflow.log_model(model, "topics", registered_model_name="news")
    again = streamtopic.mlflow.load_model(after.model_uri)
    print("documents after forgetting:", again.n_documents_)
    print("same bits after forgetting:", again.components_.tobytes() == model.components_.tobytes())
    # The first version still holds the six texts as word counts: `mlflow gc` then takes its files away.
    client = mlflow.MlflowClient()
    client.delete_model_version("news", str(before.registered_model_version))
    client.delete_logged_model(before.model_id)


if __name__ == "__main__":
    main()
