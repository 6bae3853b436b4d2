"""Write the report of a committed version of a corpus, or the comparison of two versions, to a folder of the user's.

Only committed metrics and parameters are read, and for a comparison the ids of the test items, so nothing is decrypted
and no text can reach the page. The code is that of this installation, whichever code wrote the metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import CorpusError, DataError
from pipelines.core.taxonomy import load as load_scheme
from pipelines.evaluate.inputs import TEST, EvaluationGold
from pipelines.evaluate.report import commit_comparison, export, report
from pipelines.evaluate.report import page as report_page
from pipelines.evaluate.report.commit_comparison import ReportedCommit
from pipelines.evaluate.report.page import Page
from pipelines.workspace.clone import BRANCH, Workspace, workspace
from pipelines.workspace.git import git

FORMATS = {"html": ("html", report_page.html), "md": ("md", report_page.markdown), "latex": ("tex", export.latex)}
MOST_KNOWN = 3


def write(
    corpus: str,
    *,
    settings: Settings,
    to: Path,
    form: str = "html",
    commit: str | None = None,
    against: str | None = None,
) -> dict[str, Any]:
    """Write ``report.*``, or ``comparison.*`` with ``against``, and the folder ``tables`` into the folder ``to``.

    Args:
        to: a new or empty folder.
        against: an earlier commit (or any other) that is compared with it.
    """
    with workspace(settings, revision=commit) as clone, _readable(corpus, clone):
        result = {"commit": clone.head}
        if against is None:
            name, page = "report", _report(corpus, clone)
        else:
            newer = _version(corpus, clone)
    if against is not None:
        with workspace(settings, revision=against) as clone, _readable(corpus, clone):
            result["against"] = clone.head
            name, page = "comparison", commit_comparison.build(_version(corpus, clone), newer, corpus=corpus)
    ending, render = FORMATS[form]
    to.mkdir(parents=True, exist_ok=True)
    path = to / f"{name}.{ending}"
    path.write_bytes(render(page).encode())
    return result | {"file": str(path), "tables": len(export.write(page, to / report.TABLES))}


@contextmanager
def _readable(corpus: str, clone: Workspace) -> Iterator[None]:
    """Translate the failures of reading the metrics of a commit."""
    short = clone.head[:12]
    if not (clone.path / "metrics" / corpus / "evaluate.json").is_file():
        raise DataError("NotPublished", commit=short, corpus=corpus, known=_known(corpus, clone))
    try:
        yield
    except CorpusError:
        raise
    except (KeyError, TypeError, AttributeError) as error:
        detail = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else "a field has another form"
        raise DataError("MetricsOutdated", corpus=corpus, commit=short, detail=detail) from error


def _known(corpus: str, clone: Workspace) -> str:
    path = f"metrics/{corpus}/evaluate.json"
    form = ("--format=%h of %cs", "--diff-filter=AM")
    listed = git("log", f"-{MOST_KNOWN}", *form, f"origin/{BRANCH}", "--", path, cwd=clone.path)
    if not listed:
        return f"No commit has any: first run the Dag that ends with evaluate@{corpus}."
    return f"Name a commit that has them with --commit, such as {', '.join(listed.splitlines())}."


def _report(corpus: str, clone: Workspace) -> Page:
    metrics = report.measured(corpus, root=clone.path)
    return report.page_of(corpus, metrics=metrics, params=load(clone.path), root=clone.path)


def _version(corpus: str, clone: Workspace) -> ReportedCommit:
    params = load(clone.path)
    return ReportedCommit(
        commit=clone.head,
        date=git("show", "--no-patch", "--format=%cs", clone.head, cwd=clone.path),
        title=report.title_of(corpus, params=params, root=clone.path),
        scheme=load_scheme(params.corpora[corpus].scheme, root=clone.path),
        synthetic=params.sandbox is not None,
        metrics=report.measured(corpus, root=clone.path),
        params=params.model_dump(mode="json"),
        test=_test(corpus, clone),
    )


def _test(corpus: str, clone: Workspace) -> commit_comparison.TestItems | None:
    """Return the gold of the test items by category, or ``None`` if their tables are no longer stored."""
    folder = f"snapshot/{corpus}"
    try:
        clone.checkout(*(f"{folder}/{name}" for name in ("split", "gold", "few_shot")))
        gold = EvaluationGold.read(clone.path / folder)
    except (CorpusError, OSError):
        return None
    return {
        key: {item: labels for item, labels in gold.of(key, split=TEST).items() if item not in gold.examples}
        for key in gold.labels
    }
