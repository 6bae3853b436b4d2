"""The notebooks that ship run, and what a notebook stores of its outputs has no content unless a cell asks for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.notebook.published import CORPUS, Published, published
from tests.notebook.test_notebook import words
from tests.small_corpus import ROOT

NAMES = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
ATTACKS = (
    *("display(frame)", "print(frame)", "frame.head()", "frame.text.iloc[0]", "[*frame.text]", "frame.to_html()"),
    *("frame.groupby('split').text.agg(list)", "frame.groupby('split').first()", "frame.text.value_counts()"),
    *("int(frame.text.iloc[0])", "{}[frame.text.iloc[0]]", "%xmode Verbose", "1 / frame.text.iloc[0]"),
    *("frame.to_pickle('/dev/null')", "frame.to_csv()", "frame.to_json()", "frame.to_parquet()", "frame.text.iloc[0]?"),
    *("raise ValueError(frame.text.iloc[0])", "corpus", "corpus.score({('a', 0): frame.text.iloc[0]})"),
    *("corpus.items(split=frame.text.iloc[0])", "corpus.items(text=True, why='')", "%whos", "vars(corpus)"),
    *("f'{frame.text.iloc[0]}'", "frame.describe(include='all')", "frame.to_dict()", "frame.iloc[0]", "%store frame"),
    *("corpus.to_datasets()", "frame.text.iloc[0].reveal", "frame.text.iloc[0].reveal??", "frame.text.reveal?"),
)


@pytest.fixture
def home(tmp_path: Path) -> Published:
    return published(tmp_path / "home")


def executed(notebook: Any, *, home: Published, errors: bool = False) -> str:
    """Run a notebook in a kernel whose folder is the checkout; return it with its outputs."""
    client = NotebookClient(notebook, timeout=300, allow_errors=errors, resources={"metadata": {"path": str(ROOT)}})
    given = {**os.environ, "CORPUS_HOME": str(home.settings.home)}
    client.execute(env=given | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"})
    text: str = nbformat.writes(notebook)
    return text


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_that_ships_runs_and_stores_no_content(home: Published, name: str) -> None:
    notebook = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is committed without outputs"
    text = executed(notebook, home=home)
    assert not [word for word in words(home) if word in text]
    assert ("mcnemar" if name.startswith("try") else "image/png") in text


def test_a_stored_notebook_has_content_only_where_a_cell_shows_it(home: Published) -> None:
    begin = f"from pipelines.notebook import open_corpus\ncorpus = open_corpus({CORPUS!r}, why='a test')\n"
    begin += "frame = corpus.items('train', text=True)"
    cells = [nbformat.v4.new_code_cell(source) for source in (begin, *ATTACKS)]
    text = executed(nbformat.v4.new_notebook(cells=cells), home=home, errors=True)
    assert text.count("<sealed ") > 10 and not [word for word in words(home) if word in text]
    cells = [nbformat.v4.new_code_cell(source) for source in (begin, "corpus.show([frame.index[0][0]])")]
    text = executed(nbformat.v4.new_notebook(cells=cells), home=home)
    assert [word for word in words(home) if word in text]
