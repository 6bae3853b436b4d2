"""Measure loading a saved model in a new process: seconds to the first answer, texts per second, memory.

python -m bench.loaded FOLDER [FOLDER ...]    # as `crisis_corpus.download` returns them; models of texts
"""

from __future__ import annotations

import json
import subprocess
import sys

ROUNDS, TEXTS = 3, 256
ASKED = """
import json, resource, sys, time
began = time.monotonic()
import pandas as pd
from mlflow import pyfunc
posts = pd.DataFrame({"title": [f"Day {n}" for n in range(int(sys.argv[2]))]})
posts["body"] = [f"On day {n} we went to the market. " * (1 + n % 12) for n in range(len(posts))]
model = pyfunc.load_model(sys.argv[1], suppress_warnings=True)
model.predict(posts[:1])
cold, began = time.monotonic() - began, time.monotonic()
model.predict(posts)
rate = len(posts) / (time.monotonic() - began)
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": round(cold, 2), "texts_per_second": round(rate, 1), "megabytes": round(memory)}))
"""


def main() -> None:
    for folder in sys.argv[1:]:
        asked = [sys.executable, "-c", ASKED, folder, str(TEXTS)]
        told = [subprocess.run(asked, capture_output=True, text=True, check=True).stdout for _ in range(ROUNDS)]
        # the first run of each reads the libraries from disk
        best = min((json.loads(text.splitlines()[-1]) for text in told), key=lambda found: found["seconds"])
        print(json.dumps({"folder": folder, **best}))


if __name__ == "__main__":
    main()
