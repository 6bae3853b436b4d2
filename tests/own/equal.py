"""Compare what two homes of one secret have made of a corpus, stage by stage."""

from __future__ import annotations

import hashlib

import pytest
import yaml

from tests.golden import frozen
from tests.golden.golden import outs_of, unsealer
from tests.own.page import Desk


def differing(first: Desk, second: Desk) -> tuple[list[str], set[str]]:
    """Return a line for each difference of what can be equal, and the files whose bytes differ.

    Compared are the clones ``lab`` of both: of tables the rows, content decrypted; of other files the values but times.
    """
    (lines, digests), (others, further) = _made(first), _made(second)
    paths = {path for path in digests.keys() | further.keys() if digests.get(path) != further.get(path)}
    return [*frozen.differences(lines, others)], paths


def _made(desk: Desk) -> tuple[frozen.Frozen, dict[str, str]]:
    lab = desk.code / "lab"
    outs = outs_of(lab)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CORPUS_HOME", "CORPUS_SECRET"):
            patch.setenv(name, desk.place[1][name])
        made = frozen.freeze(lab, outs, unseal=unsealer())
    files = [path for name in made.values() for path in name]
    digests = {path: hashlib.sha256((lab / path).read_bytes()).hexdigest() for path in files}
    # what ran, and under which parameters
    lock = yaml.safe_load((lab / "dvc.lock").read_text())["stages"]
    ran = {name: frozen.values_of({key: entry.get(key) for key in ("cmd", "params")}) for name, entry in lock.items()}
    return made | {"dvc.lock": ran}, digests
