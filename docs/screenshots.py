"""Take the pictures of the documentation from the running demo, with Chromium: `python docs/screenshots.py`."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from websockets.sync.client import ClientConnection, connect

from pipelines.config import logins
from pipelines.config.settings import Settings

IMAGES = Path(__file__).resolve().parent / "images"
# Seconds after which a page has loaded its data.
LOADED = 15.0
# The cookie with which Airflow's pages authenticate.
COOKIE = "_token"


class Browser:
    """A headless Chromium, driven through its DevTools protocol: its command line can set no cookie."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Run one command of the protocol and return its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while (answer := json.loads(self._socket.recv(timeout=60))).get("id") != number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def shoot(self, name: str, address: str, *, size: tuple[int, int]) -> None:
        """Write one picture of a page, ``size`` in pixels."""
        width, height = size
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Page.navigate", url=address)
        time.sleep(LOADED)
        picture = self.send("Page.captureScreenshot", format="png")["data"]
        (IMAGES / f"{name}.png").write_bytes(base64.b64decode(picture))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Yield a Chromium with an empty profile below ``folder``."""
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--force-color-profile=srgb", "--lang=en"]
    options += [f"--user-data-dir={folder / 'chromium'}", "--remote-debugging-port=0", "about:blank"]
    with subprocess.Popen(["chromium", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            chosen = folder / "chromium" / "DevToolsActivePort"
            while not (chosen.exists() and chosen.read_text().count("\n")):
                time.sleep(0.1)
            port = chosen.read_text().split()[0]
            tabs = requests.get(f"http://127.0.0.1:{port}/json", timeout=60).json()
            page = next(one for one in tabs if one["type"] == "page")
            with connect(page["webSocketDebuggerUrl"], max_size=None) as socket:
                yield Browser(socket)
        finally:
            process.terminate()


def token(airflow: str, *, password: str) -> str:
    """Return the token that Airflow gives its administrator."""
    login = {"username": logins.ADMIN, "password": password}
    answer = requests.post(f"{airflow}/auth/token", json=login, timeout=60)
    answer.raise_for_status()
    return str(answer.json()["access_token"])


def report(tracking: str, corpus: str, folder: Path) -> Path:
    """Return the page of a corpus's newest report, downloaded from MLflow."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking)
    experiments = [one.experiment_id for one in client.search_experiments() if one.name.startswith(corpus)]
    for run in client.search_runs(experiments):
        if client.list_artifacts(run.info.run_id, "report"):
            return Path(client.download_artifacts(run.info.run_id, "report/report.html", str(folder)))
    raise SystemExit(f"MLflow has no report of {corpus}; run `make demo` first.")


def main() -> int:
    """Take the pictures."""
    settings = Settings.from_env()  # also sets the login of MLflow
    ports = json.loads((settings.home / "ports.json").read_text())
    airflow = f"http://127.0.0.1:{ports['airflow']}"
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder)) as chromium:
        chromium.send("Network.setCookie", name=COOKIE, url=airflow,
                      value=token(airflow, password=logins.password(settings.home, logins.ADMIN)))  # fmt: skip
        chromium.shoot("airflow", f"{airflow}/dags/posts_finetune", size=(1400, 800))
        chromium.shoot("corpus_page", f"{airflow}/plugin/corpus", size=(1440, 900))
        page = report(f"http://127.0.0.1:{ports['mlflow']}", "posts", Path(folder))
        chromium.shoot("report", page.as_uri(), size=(1200, 900))
    return 0


if __name__ == "__main__":
    sys.exit(main())
