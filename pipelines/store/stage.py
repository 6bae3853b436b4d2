"""Declare the stages of ``dvc.yaml``: each is a module with a :class:`Stage` and ``run``, from which the rest follows.

The module's name is that of the stage, its command, its task and its section of ``params.yaml``; the first sentence of
the module describes it. ``make stages`` writes ``dvc.yaml``: the modules and libraries that a stage imports are its
dependencies, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pipelines.core.config.base import Fitted, Section, fitted
from pipelines.core.config.collect import Use
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.store.vault.vault import Vault

Described = TypeVar("Described")


CONTENT, SCHEME, PUBLISHED = "corpora.{corpus}.content", "corpora.{corpus}.scheme", "{published}"
# What a request to a labeller is made with, and about.
ASKED = (
    *(f"votes.{key}" for key in ("mode", "constrained", "max_output_tokens", "context_tokens", "max_failed", "seed")),
    *("prompts", "distributions", CONTENT, SCHEME),
)


@dataclass(frozen=True)
class Stage:
    """What a stage reads, depends on and writes; ``{corpus}``, ``{name}`` and the like are values of its row.

    Metrics are written to ``metrics/<corpus>/<stage>.json`` or, of a row, ``<stage>-<name>.json``.

    Args:
        reads: other stages, whose results for the corpus it reads; other folders; files of metrics; ``{published}``,
            the file of the corpus's published split.
        params: keys of the parameters, and of ``rows.yaml``.
        parameters: the model of its section of ``params.yaml``, unless :class:`Params` has it.
        writes: folders below ``snapshot/<corpus>``, and other paths of metrics; ``None`` for the stage's name, and of a
            row for its folder there.
        rows: the section of ``rows.yaml`` with a row for each run; else it runs once for each corpus.
        use: what it uses the records for, which the approvals of their sources have to cover.
        asks: whether its results are answers of vendors, which no new version of a library makes worth paying again.
        revision: raise it when the results change; ``corpus upgrade`` keeps results of the same revision.
    """

    reads: tuple[str, ...]
    params: tuple[str, ...]
    writes: tuple[str, ...] | None = None
    rows: str = ""
    use: Use | None = None
    asks: bool = False
    parameters: type[Section] | None = None
    revision: int = 1


@dataclass(frozen=True)
class Context:
    """What a stage runs with.

    Args:
        keys: opens the vault, which not every stage needs.
        root: the checkout or clone.
        row: the name of the row, without the corpus.
    """

    corpus: str
    params: Params
    settings: Settings
    keys: Callable[[], Vault]
    root: Path = Path()
    row: str = ""

    def section(self, name: str, model: type[Fitted]) -> Fitted:
        return fitted(model, (self.params.model_extra or {}).get(name, {}), key=name)

    @property
    def vault(self) -> Vault:
        return self.keys()

    def described(self, kind: str, section: Mapping[str, Described]) -> Described:
        """Return the entry of the parameters that the row names; ``ConfigError`` (``UnknownName``) lists the known."""
        if self.row not in section:
            raise ConfigError("UnknownName", kind=kind, name=self.row, known=", ".join(section))
        return section[self.row]
