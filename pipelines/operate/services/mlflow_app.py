"""Serve MLflow behind a password: ``uvicorn --factory pipelines.operate.services.mlflow_app:app``.

MLflow's own ``basic-auth`` needs a further package, and a database of users. The guard of this and other services also
refuses requests of other sites. It protects servers on loopback from web pages: one whose name was rebound to 127.0.0.1
sends that name as its host (DNS rebinding), and one of another site or port names itself as the origin.
"""

from __future__ import annotations

import base64
import hmac
import os
from collections.abc import Collection
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost"})


def local(host: str, origin: str | None) -> bool:
    """Return whether a request's ``host`` is loopback, and its ``origin`` is not a page of another site."""
    host = host.lower()
    return host.partition(":")[0] in LOOPBACK and origin in (None, f"http://{host}")


class Guard:
    """An ASGI application that passes requests on to ``app`` unless another site sent them or they lack a password.

    ``login`` is the user and password of HTTP Basic (default: ``app`` has its own login); ``public`` paths need none.
    """

    def __init__(self, app: ASGIApp, *, login: tuple[str, str] | None = None, public: Collection[str] = ()) -> None:
        self.app = app
        self.public = frozenset(public)
        self.wanted = b"Basic " + base64.b64encode(":".join(login).encode()) if login else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 403 or 401."""
        status = None if scope["type"] == "lifespan" else self._refusal(scope)
        if status is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            asks = [(b"www-authenticate", b"Basic")] if status == HTTPStatus.UNAUTHORIZED else []
            await send({"type": "http.response.start", "status": int(status), "headers": asks})
            await send({"type": "http.response.body", "body": status.phrase.encode()})

    def _refusal(self, scope: Scope) -> HTTPStatus | None:
        headers = dict(scope["headers"])
        origin = headers.get(b"origin")
        if not local(headers.get(b"host", b"").decode("latin-1"), None if origin is None else origin.decode("latin-1")):
            return HTTPStatus.FORBIDDEN
        authorization = headers.get(b"authorization", b"")
        if self.wanted is None or scope["path"] in self.public or hmac.compare_digest(authorization, self.wanted):
            return None
        return HTTPStatus.UNAUTHORIZED


# The database and the folder of the artifacts.
STORE, ARTIFACTS = "CORPUS_MLFLOW_STORE", "CORPUS_MLFLOW_ARTIFACTS"
# The root of the artifacts that clients see; the server stores them in its folder.
PROXIED = "mlflow-artifacts:/"


def store(home: Path) -> str:
    """Return the address of the embedded MLflow's database, or of another one that this process may open."""
    return os.environ.get(STORE) or f"sqlite:///{home}/mlflow.sqlite"


def artifacts(home: Path) -> Path:
    """Return the folder in which the embedded MLflow stores the files of runs and models."""
    return Path(os.environ.get(ARTIFACTS) or home / "mlflow")


def app() -> Guard:
    """Return MLflow's web application behind a login, which is that of MLflow's clients in the environment."""
    from mlflow.server import constants

    store = os.environ[STORE]
    # as `mlflow server` hands its options to its workers
    os.environ |= {
        constants.BACKEND_STORE_URI_ENV_VAR: store,
        constants.REGISTRY_STORE_URI_ENV_VAR: store,
        constants.ARTIFACT_ROOT_ENV_VAR: PROXIED,
        constants.ARTIFACTS_DESTINATION_ENV_VAR: os.environ[ARTIFACTS],
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
    }
    from mlflow.server.fastapi_app import app as served
    from mlflow.server.handlers import initialize_backend_stores

    initialize_backend_stores(store, store, PROXIED)
    login = os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"]
    return Guard(served, login=login, public={"/health"})
