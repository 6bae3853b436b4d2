"""Add the Corpus page to Airflow: its address and its entry in the navigation.

The page's own modules are imported with the first request: Airflow loads plugins in all its processes, and only the API
server serves pages.
"""

from __future__ import annotations

import threading
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from corpus_view import summary_listener
from dvc_airflow.settings import named

NAME = named("corpus")


class Lazy:
    """An ASGI application that is imported and built when the first request arrives."""

    def __init__(self) -> None:
        self._app: Any = None
        self._lock = threading.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._app is None:
            import asyncio

            await asyncio.to_thread(self._build)
        await self._app(scope, receive, send)

    def _build(self) -> None:
        with self._lock:
            if self._app is None:
                from corpus_view.page_app import build

                self._app = build()


class CorpusPage(AirflowPlugin):
    """The Corpus page at ``/corpus/`` and its entry in Airflow's navigation; the prefix of Dags is also theirs."""

    name = "corpus_view"
    listeners = [summary_listener]  # noqa: RUF012 - as Airflow reads it
    fastapi_apps = [{"name": "corpus_view", "app": Lazy(), "url_prefix": f"/{NAME}"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "Corpus",
            # relative, for an Airflow below a path
            "href": f"{NAME}/",
            "url_route": NAME,
            "destination": "nav",
            "icon": f"{NAME}/icon.svg",
            "icon_dark_mode": f"{NAME}/icon-dark.svg",
            "nav_top_level": True,
        }
    ]
