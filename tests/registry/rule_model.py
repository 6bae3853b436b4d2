"""A model as the registry serves them, small enough for tests: it knows some words, and each gives a label away."""

import json
import os
from pathlib import Path

import mlflow
import pandas as pd


class RuleModel(mlflow.pyfunc.PythonModel):
    """Reads ``words.json`` of its pack: word -> label; ``default``: label without any word; ``abstains``: words.

    With ``alerts``, it raises them for every item; models of earlier releases have no such column.
    """

    def load_context(self, context):
        folder = Path(context.artifacts["pack"])
        if not (folder / "card.json").is_file():
            raise ValueError("no card")
        self.known = json.loads((folder / "words.json").read_text())

    def predict(self, context, model_input, params=None):
        if os.environ.get("RULE_MODEL_FAILS"):
            raise RuntimeError(str(model_input["text"][0]))
        rows = [self._one(str(text).split()) for text in model_input["text"]]
        found = pd.DataFrame(rows, columns=["labels", "probabilities", "abstain"])
        return found.assign(alerts=[self.known["alerts"]] * len(found)) if "alerts" in self.known else found

    def _one(self, words):
        found = sorted({label for word, label in self.known["words"].items() if word in words})
        return found or self.known["default"], [], any(word in self.known["abstains"] for word in words)


mlflow.models.set_model(RuleModel())
