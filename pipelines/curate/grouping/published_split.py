"""Read a published split, which overrides drawn splits, so that results are comparable with published results.

Items of a published split and items already assigned to a split are called members: no later step may drop them.
"""

from __future__ import annotations

from pathlib import Path

from pipelines.config.curate import Split
from pipelines.errors import BadParams
from pipelines.storage.tables import Item
from pipelines.storage.tracked import read_csv
from pipelines.vault.vault import Vault

HEADER = ["record_id", "image", "split"]


def published(params: Split, *, root: Path) -> dict[Item, str]:
    """Read the CSV file ``split.published`` (``record_id,image,split``); return the split of each item.

    The result is empty if no file is configured.

    Raises:
        BadParams: the file is missing, or has another header, an unknown split, an image that is not a number, or an
            item twice.
    """
    if params.published is None:
        return {}
    where = f"split.published ({params.published})"
    rows: dict[Item, str] = {}
    for place, line in read_csv(root / params.published, root=root, header=HEADER, where=where):
        item, split = _row(line, params=params, where=place)
        if item in rows:
            raise BadParams(where=place, detail="this item is in the file twice")
        rows[item] = split
    return rows


def members(corpus: str, *, params: Split, vault: Vault, root: Path) -> set[Item]:
    """Return the items that deduplication and sampling must keep, because they are already in a split.

    These are the items of the published split, and of this and earlier versions of the corpus's split. People labelled
    the items of earlier versions; a new version divides the same items.
    """
    versions = (vault.assignments(corpus, version=number) for number in range(1, params.version + 1))
    return set().union(*versions, published(params, root=root))


def _row(line: list[str], *, params: Split, where: str) -> tuple[Item, str]:
    if len(line) != len(HEADER) or not line[1].isdecimal():
        raise BadParams(where=where, detail=f"not of the form {','.join(HEADER)} with a whole number for the image")
    record_id, image, split = line
    if split not in params.ratios:
        raise BadParams(where=where, detail=f"its split is not one of {', '.join(params.ratios)}")
    return (record_id, int(image)), split
