"""Add the offline Reddit's server to a local deployment, on the port that its posts name."""

from __future__ import annotations

from crisis_corpus_sandbox.reddit.build import drawn_port
from pipelines.core.components import free_port, is_free, running
from pipelines.core.config.collect import Sandbox
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings, provider_variable
from pipelines.core.errors import BadParams, ConfigError
from pipelines.operate.services.services import AddedComponent

NAME = "sandbox"
# The version in the URL path of each simulated vendor.
VENDORS = {"openai": "/v1", "anthropic": "", "google": "", "azure": "", "guard": "/v1", "local": "/v1"}


def with_port(params: Params, settings: Settings) -> Sandbox:
    """Return the parameters of the offline Reddit with its port: ``CORPUS_SANDBOX_PORT``, else that of the drawn posts.

    The addresses of pictures in the posts contain the port, so before they are drawn, one is chosen that is free.
    Raises ``PortTaken`` if another program has the port.
    """
    if (sandbox := params.sandbox) is None:
        raise BadParams(where="the profile", detail="has no section sandbox")
    port = settings.sandbox_port or drawn_port(settings.sandbox)
    if port is None:
        port = free_port(sandbox.port)
    elif not is_free(port) and not running(settings.home / "run" / f"{NAME}.pid"):
        todo = f"run `export CORPUS_SANDBOX_PORT={free_port(port)}`, with which the offline Reddit is drawn again"
        raise ConfigError("PortTaken", name="the offline Reddit", port=port, todo=todo)
    return sandbox.model_copy(update={"port": port})


def added(settings: Settings, params: Params) -> list[AddedComponent]:
    """Return the server of the offline Reddit, if the parameters have a section ``sandbox``."""
    if params.sandbox is None:
        return []
    port = with_port(params, settings).port
    own = {"CORPUS_SANDBOX_PORT": str(port), "CORPUS_CONTACT": settings.contact or "sandbox@localhost"}
    argv = ("-m", "pipelines", "sandbox", "serve")
    return [AddedComponent(NAME, port, argv, "/_sandbox/requests", own | variables(port))]


def variables(port: int) -> dict[str, str]:
    """Return the environment variables with which tasks use the simulated Reddit and vendors on a port."""
    base = f"http://127.0.0.1:{port}"
    made = dict.fromkeys(("CORPUS_REDDIT_URL", "CORPUS_REDDIT_OAUTH_URL", "CORPUS_ARCTIC_SHIFT_URL"), base)
    made |= dict.fromkeys(("CORPUS_REDDIT_CLIENT_ID", "CORPUS_REDDIT_CLIENT_SECRET"), "sandbox")
    for vendor, version in VENDORS.items():
        name = provider_variable(vendor)
        made |= {f"{name}_URL": f"{base}/{vendor}{version}", f"{name}_KEY": "sandbox"}
    return made
