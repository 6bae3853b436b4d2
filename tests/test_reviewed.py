"""No definition, guideline, rule, prompt, column mapping or planned round changes without a person's review."""

from __future__ import annotations

import pytest

from tests import reviewed

NOW = reviewed.digests()


@pytest.mark.parametrize("file", sorted(NOW.keys() | reviewed.read()))
def test_every_part_of_a_file_was_reviewed(file: str) -> None:
    known, now = reviewed.read().get(file, {}), NOW.get(file, {})
    changed = sorted(place for place in known.keys() | now.keys() if known.get(place) != now.get(place))
    assert not changed, (
        f"{file}, or the templates of prompts, changed in: {', '.join(changed)}. Read each part beside its source (the "
        "paper's section named in the file). If a scheme's meaning changed, raise its version and the revisions of the "
        "stages that read it. Then run `.venv/bin/python tests/reviewed.py`, which records your review."
    )
