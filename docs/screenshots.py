"""Take the pictures of the documentation from the running demo, with Chromium: `python docs/screenshots.py [NAME ...]`.

The questions for approvals are asked for the pictures, and rejected afterwards.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from PIL import Image
from websockets.sync.client import ClientConnection, connect

from crisis_corpus.home import TRACKING, password_of
from pipelines.core.config.settings import ADMIN, Settings
from pipelines.operate.services.airflow_api import Airflow, Login
from pipelines.registry.journal import Journal

IMAGES = Path(__file__).resolve().parent / "images"
# Seconds after which a page has loaded its data.
LOADED = 15.0
# Seconds after which a form or a graph is drawn, and within which a run asks its question.
OPENED, ASKED = 4.0, 900.0
CONTESTED = "meme-severity"
# Beside a version, MLflow has its assistant.
CROPPED = {"version": (0, 1258)}
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

    def run(self, script: str) -> Any:
        """Run JavaScript in the page and return its value."""
        return self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)["result"].get(
            "value"
        )

    def click(self, text: str) -> None:
        """Press the first button with this text or label, as a mouse does, and wait for what it opens."""
        names = "[b.textContent.trim(), b.getAttribute('aria-label')]"
        button = f"[...document.querySelectorAll('button')].find(b => {names}.includes({json.dumps(text)}))"
        middle = "(r => [r.x + r.width / 2, r.y + r.height / 2])(b.getBoundingClientRect())"
        at = self.run(f"(b => b ? {middle} : null)({button})")
        if at is None:
            raise RuntimeError(f"There is no button '{text}'.")
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)
        time.sleep(OPENED)

    def shoot(
        self,
        name: str,
        address: str,
        *,
        size: tuple[int, int],
        press: Sequence[str] = (),
        crop: tuple[int, int] | None = None,
    ) -> None:
        """Write one picture of a page.

        Args:
            name: of the file.
            address: of the page.
            size: of the window in pixels.
            press: buttons to press one after the other.
            crop: the first and last column of the picture; default: the whole window.
        """
        width, height = size
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        # a page that differs in what follows its # only would not be loaded again
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=address)
        time.sleep(LOADED)
        for button in press:
            self.click(button)
        picture = base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])
        left, right = crop or (0, width)
        shown = Image.open(io.BytesIO(picture)).convert("RGB").crop((left, 0, right, height))
        # 256 colours are a third of the size
        shown.quantize(256, dither=Image.Dither.NONE).save(IMAGES / f"{name}.png", optimize=True)


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
            with connect(page["webSocketDebuggerUrl"], max_size=None, ping_interval=None) as socket:
                yield Browser(socket)
        finally:
            process.terminate()


def token(airflow: str, *, password: str) -> str:
    """Return the token that Airflow gives its administrator."""
    login = {"username": ADMIN, "password": password}
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


def plots(folder: Path) -> Path:
    """Return the page that `dvc plots show` writes in a clone of the corpus."""
    corpus = [sys.executable, "-m", "pipelines", "clone", str(folder / "lab")]
    subprocess.run(corpus, check=True, stdout=subprocess.DEVNULL)
    show = [sys.executable, "-m", "dvc", "plots", "show"]
    subprocess.run(show, cwd=folder / "lab", check=True, stdout=subprocess.DEVNULL)
    return next((folder / "lab").rglob("dvc_plots/index.html"))


def candidate(settings: Settings) -> int:
    """Return the version that the demo rolled back from, which passes the gate again."""
    with Journal.of(settings) as journal:
        rows = [row for row in journal.rows(CONTESTED) if row.event == "rolled_back"]
    if not rows or rows[-1].from_version is None:
        raise SystemExit(f"The demo has not rolled {CONTESTED} back yet.")
    return rows[-1].from_version


@contextmanager
def asked(client: Airflow, dag: str, conf: Mapping[str, Any]) -> Iterator[str]:
    """Start a run of a Dag and yield the path of its question to a person; reject it at the end."""
    client.unpause(dag)
    run, until = client.trigger(dag, conf=conf), time.monotonic() + ASKED
    task = f"/dags/{dag}/dagRuns/{run}/taskInstances/approve"
    while client.get(task)["state"] != "awaiting_input":
        if time.monotonic() > until:
            raise SystemExit(f"The run {run} of {dag} asks nothing; read its log.")
        time.sleep(2)
    try:
        yield f"/dags/{dag}/runs/{run}/tasks/approve/required_actions"
    finally:
        while not client.answer(dag, run, "approve", option="Reject", given={"why": "asked for a picture"}):
            time.sleep(2)


def main(wanted: Sequence[str]) -> int:
    """Take the pictures with these names, or all."""
    settings = Settings.from_env()  # also sets the login of MLflow
    ports = json.loads((settings.home / "ports.json").read_text())
    airflow, tracking = (f"http://127.0.0.1:{ports[name]}" for name in ("airflow", "mlflow"))
    known = {name: password_of(settings.home, name) for name in (ADMIN, TRACKING)}
    client = Airflow(airflow, login=Login(user=ADMIN, password=known[ADMIN]))
    version = candidate(settings) if not wanted or {"version", "approve_promotion"} & set(wanted) else 0
    pages: dict[str, tuple[str, tuple[int, int], Sequence[str]]] = {
        "airflow": (f"{airflow}/dags/posts_benchmark", (1400, 800), ()),
        "corpus_page": (f"{airflow}/plugin/corpus", (1440, 900), ()),
        "trigger_month": (f"{airflow}/dags/memes_collect", (1200, 900), ["Trigger Dag"]),
        "trigger_promote": (f"{airflow}/dags/promote", (1200, 900), ["Trigger Dag"]),
        "version": (f"{tracking}/#/models/{CONTESTED}/versions/{version}", (1700, 900), ()),
    }
    with tempfile.TemporaryDirectory() as made, browser(Path(made)) as chromium:
        folder = Path(made)
        chromium.send("Network.enable")
        chromium.send("Network.setCookie", name=COOKIE, url=airflow, value=token(airflow, password=known[ADMIN]))
        login = base64.b64encode(f"{TRACKING}:{known[TRACKING]}".encode()).decode()
        for name, (address, size, press) in pages.items():
            if not wanted or name in wanted:
                basic = {"Authorization": f"Basic {login}"} if address.startswith(tracking) else {}
                chromium.send("Network.setExtraHTTPHeaders", headers=basic)
                chromium.shoot(name, address, size=size, press=press, crop=CROPPED.get(name))
        chromium.send("Network.setExtraHTTPHeaders", headers={})
        questions: dict[str, tuple[str, Mapping[str, Any]]] = {
            "approve_promotion": ("promote", {"name": CONTESTED, "version": version}),
            "approve_release": ("release", {"corpus": "memes", "name": "picture-1"}),
        }
        for name, (dag, conf) in questions.items():
            if not wanted or name in wanted:
                with asked(client, dag, conf) as path:
                    chromium.shoot(name, f"{airflow}{path}", size=(1400, 1500))
        if not wanted or "graph" in wanted:
            # last: Airflow shows graphs from now on, which leave less room for a question
            shown = ["Show Graph (Press g)", "Collapse Details Panel", "Fit View"]
            chromium.shoot("graph", f"{airflow}/dags/memes_benchmark", size=(1400, 560), press=shown)
        if not wanted or "plots" in wanted:
            chromium.shoot("plots", plots(folder).as_uri(), size=(820, 700))
        if not wanted or "report" in wanted:
            chromium.shoot("report", report(tracking, "posts", folder).as_uri(), size=(1200, 566))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
