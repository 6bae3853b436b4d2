"""``python s3_server.py PORT [--down-while FILE]``: serve moto's S3 on loopback, in memory; 503 while FILE exists.

moto looks whether a key exists and stores it in two steps, which two threads may interleave. S3 itself decides a
conditional write as one step, and so does this server: it answers one request at a time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

DOWN = sys.argv[sys.argv.index("--down-while") + 1] if "--down-while" in sys.argv else ""
_one = threading.Lock()
_app = DomainDispatcherApplication(create_backend_app)


def _answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    with _one:
        if DOWN and Path(DOWN).exists():
            start("503 Service Unavailable", [])
            return []
        return list(_app(environ, start))


if __name__ == "__main__":
    app = _app if "--as-is" in sys.argv else _answer
    make_server("127.0.0.1", int(sys.argv[1]), app, threaded=True).serve_forever()
