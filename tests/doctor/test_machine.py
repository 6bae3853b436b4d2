"""Checks of the machine that need a server of another kind than the healthy deployment has."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.operate.doctor import machine
from pipelines.operate.doctor.deployment import Deployment

ROOT = Path(__file__).resolve().parents[2]


class TwoDates(BaseHTTPRequestHandler):
    """Answer with two Date headers, as MLflow does."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Date", self.date_time_string())
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def test_a_server_that_sends_its_date_twice_is_a_clock() -> None:
    with HTTPServer(("127.0.0.1", 0), TwoDates) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        settings = Settings.from_env().model_copy(update={"mlflow_tracking_uri": address, "reddit_client_id": ""})
        now = datetime.now(UTC)
        found = machine.clock(Deployment(settings, load(ROOT), ROOT, None, now), seconds=20)
        server.shutdown()
    assert (found.status, found.found) == ("ok", "agrees with MLflow")
