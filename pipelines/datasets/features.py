"""Load a labeller's remarks on memes, which models of kinds ``m3h`` and ``infused`` take as input.

M3H (Mazhar et al. 2025) has GPT-4o explain each meme under three heads: cause and effect, figurative understanding,
mental state (the authors' repository, flamenlp/M3H). The stage ``rationales`` requests them
(:mod:`pipelines.label.rationales`), once for all runs of a model; here they are decrypted, in memory only. They
retell the meme and so are content: no log, error, metric or file may contain them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.core.errors import ConfigError
from pipelines.datasets.example import Item
from pipelines.store import tables
from pipelines.store.seal import open_column
from pipelines.store.vault.vault import Vault

HEADS = ("cause_effect", "figures_of_speech", "mental_state")

Remarks = tuple[str, str, str]


@dataclass(frozen=True)
class Cues:
    """The remarks on memes by a labeller (a model input), decrypted in memory only; ``repr`` omits them."""

    of: Mapping[Item, Remarks | None] = field(repr=False)
    outcomes: Mapping[str, int]
    labeller: str

    def remarks(self, item: Item) -> Remarks | None:
        """Return the three remarks on a meme, or ``None`` if the labeller gave none."""
        if item not in self.of:
            detail = f"labeller '{self.labeller}' has no rationales for image {item[1]} of {item[0]}"
            raise ConfigError("NoCues", detail=detail)
        return self.of[item]


def by_labeller(cues: Cues | None, *, labeller: str) -> Cues:
    """Return ``cues`` after a check that they were loaded and that ``labeller`` wrote them."""
    if cues is None:
        raise ConfigError("NoCues", detail=f"the rationales of labeller '{labeller}' were not loaded")
    if cues.labeller != labeller:
        detail = f"they are from labeller '{cues.labeller}', but params.yaml names '{labeller}'"
        raise ConfigError("NoCues", detail=detail)
    return cues


def place(corpus: str, *, model: str, root: Path) -> Path:
    """Return the path of the table of remarks on memes that a model reads; each model has its own table."""
    return root / "snapshot" / corpus / "rationales" / model / "rationales.parquet"


def load(corpus: str, *, model: str, labeller: str, vault: Vault, root: Path = Path()) -> Cues:
    """Read and decrypt the remarks on memes that the stage ``rationales`` wrote for a model."""
    path = place(corpus, model=model, root=root)
    if not path.is_file():
        raise ConfigError("NoCues", detail=f"the stage `rationales` wrote none for model '{model}'")
    table = tables.read(path, name="rationales")
    rows = table.select(["record_id", "image", "labeller", "outcome"]).to_pylist()
    if {row["labeller"] for row in rows} != {labeller}:
        raise ConfigError("NoCues", detail=f"the stored ones of model '{model}' are not from labeller '{labeller}'")
    opened = open_column(table, name="rationales", column="remarks", vault=vault)
    return Cues(
        of={
            (row["record_id"], row["image"]): None if said is None else unpacked(said)
            for row, said in zip(rows, opened, strict=True)
        },
        outcomes=dict(sorted(Counter(row["outcome"] for row in rows).items())),
        labeller=labeller,
    )


def packed(remarks: Remarks) -> str:
    """Encode the three remarks on a meme as JSON (head -> text), the content of the encrypted column."""
    return json.dumps(dict(zip(HEADS, remarks, strict=True)))


def unpacked(data: bytes) -> Remarks:
    """Decode the three remarks on a meme from the JSON that :func:`packed` returns."""
    stored = json.loads(data)
    cause_effect, figures_of_speech, mental_state = (stored[head] for head in HEADS)
    return cause_effect, figures_of_speech, mental_state
