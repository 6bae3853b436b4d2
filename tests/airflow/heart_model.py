"""A model as the registry serves them that knows some posts by heart, and says one label of all the others."""

import hashlib
import json
from pathlib import Path

import mlflow
import pandas as pd


class HeartModel(mlflow.pyfunc.PythonModel):
    """Reads ``known.json`` of its pack: SHA-256 of title and body -> labels; ``default``: labels of all others."""

    def load_context(self, context):
        self.known = json.loads((Path(context.artifacts["pack"]) / "known.json").read_text())

    def predict(self, context, model_input, params=None):
        posts = zip(model_input["title"], model_input["body"], strict=True)
        said = [self.known["posts"].get(digest(title, body), self.known["default"]) for title, body in posts]
        return pd.DataFrame({"labels": said, "probabilities": [[]] * len(said), "abstain": [False] * len(said)})


def digest(title, body):
    return hashlib.sha256(f"{title}\n{body}".encode()).hexdigest()


mlflow.models.set_model(HeartModel())
