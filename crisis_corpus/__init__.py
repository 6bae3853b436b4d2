"""Load the registered models of a crisis corpus, verify them, and detect changes of the champion.

    from crisis_corpus import load
    model = load("crisis-posts")
    print(model(["a text", {"title": "A title", "body": "What it says"}]))

:mod:`crisis_corpus.webhook` verifies signed webhooks; :mod:`crisis_corpus.hydrate` fetches the posts of a release.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crisis_corpus.client import Model, NotLoaded, changed, download, load, token
    from crisis_corpus.errors import CorpusError
    from crisis_corpus.webhook import BadWebhook, Webhook, verify

__all__ = [
    "BadWebhook", "CorpusError", "Model", "NotLoaded", "Webhook", "changed", "download", "load", "token", "verify",
]  # fmt: skip
_MODULES = {
    "client": ("Model", "NotLoaded", "changed", "download", "load", "token"),
    "errors": ("CorpusError",),
    "webhook": ("BadWebhook", "Webhook", "verify"),
}


def __getattr__(name: str) -> Any:
    # late, because hydrate and the code of a model version need no database
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
