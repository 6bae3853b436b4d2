"""What a meme leaves unsaid, in a labeller's words: the remarks that M3H reads beside the words and the picture.

M3H (Mazhar et al. 2025) has GPT-4o explain each meme under three heads: cause and effect, figurative understanding,
mental state (the authors' repository, flamenlp/M3H). The stage ``remarks`` asks for them
(:mod:`pipelines.label.rationales`), once for all runs of a model; here they are opened again, in memory alone. They are
content, for they retell the meme: no log, error, metric or file has them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.datasets.example import Item
from pipelines.errors import ConfigError
from pipelines.storage import tables
from pipelines.storage.seal import open_column
from pipelines.vault.vault import Vault

HEADS = ("cause_effect", "figurative", "mental_state")

Remarks = tuple[str, str, str]


class NoCues(ConfigError):
    """M3H is to be built without what makes it M3H; nothing stands in for it."""

    message = "Models of kind m3h need a labeller's remarks on every meme: {detail}."
    remedy = (
        "Name a remote labeller that sees pictures in the model's entry of params.yaml and the model in train.models, "
        "state the labeller's key and a votes.budget_usd, and run the stage remarks; or leave m3h out."
    )


@dataclass(frozen=True)
class Cues:
    """The remarks on memes, in memory only; its ``repr`` has none of them.

    Args:
        of: the three remarks (in the order of ``HEADS``) of every item that was asked about; ``None`` where the
            labeller refused, answered something else, failed, or the record was taken down.
        outcomes: how many items had each of the five outcomes of a question; only ``vote`` has remarks.
        labeller: who was asked.
    """

    of: Mapping[Item, Remarks | None] = field(repr=False)
    outcomes: Mapping[str, int]
    labeller: str

    def remarks(self, item: Item) -> Remarks | None:
        """Return the remarks on an item.

        Raises:
            NoCues: nobody asked about it.
        """
        if item not in self.of:
            raise NoCues(detail=f"labeller '{self.labeller}' was not asked about image {item[1]} of {item[0]}")
        return self.of[item]


def place(corpus: str, *, model: str, root: Path) -> Path:
    """Return where a model's remarks lie: apart from other models', whose runs they must not touch."""
    return root / "snapshot" / corpus / "remarks" / model / "remarks.parquet"


def load(corpus: str, *, model: str, labeller: str, vault: Vault, root: Path = Path()) -> Cues:
    """Open the remarks that the stage ``remarks`` wrote for a model.

    Raises:
        NoCues: it did not run for this model, or asked another labeller.
        SealBroken: a remark was altered, or belongs to another vault.
    """
    path = place(corpus, model=model, root=root)
    if not path.is_file():
        raise NoCues(detail=f"the stage remarks wrote none for '{model}'")
    table = tables.read(path, name="remarks")
    rows = table.select(["record_id", "image", "labeller", "outcome"]).to_pylist()
    if {row["labeller"] for row in rows} != {labeller}:
        raise NoCues(detail=f"those of '{model}' are not of labeller '{labeller}'")
    opened = open_column(table, name="remarks", column="remarks", vault=vault)
    return Cues(
        of={
            (row["record_id"], row["image"]): None if said is None else unpacked(said)
            for row, said in zip(rows, opened, strict=True)
        },
        outcomes=dict(sorted(Counter(row["outcome"] for row in rows).items())),
        labeller=labeller,
    )


def packed(remarks: Remarks) -> str:
    """Return remarks as the sealed column has them: JSON, by head."""
    return json.dumps(dict(zip(HEADS, remarks, strict=True)))


def unpacked(data: bytes) -> Remarks:
    """Return what :func:`packed` was given."""
    found = json.loads(data)
    one, two, three = (found[head] for head in HEADS)
    return one, two, three
