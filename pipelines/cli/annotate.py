"""Define the commands for annotation: server, imports, agreement, gold, and rounds from sampling to the decision."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.options import EXISTING, AsJson, CorpusName, argument, checked, group, option
from pipelines.cli.shared import doing, emit, opened, project_root, show_sheets
from pipelines.core.config.base import CORPORA
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.core.process import now

if TYPE_CHECKING:
    from pipelines.annotate.rounds.store import RoundSite

app = typer.Typer()
# Ours: enough cells to see what a person did wrong in a whole column.
SHOWN = 20


@app.command(rich_help_panel="Annotate")
def annotate(
    port: Annotated[int | None, option("the port of Label Studio; default: 8081", min=1, max=65535)] = None,
) -> None:
    """Start the backend's server (Label Studio); print its address and the path of the file with the passwords."""
    from pipelines.annotate.backends import BACKENDS

    params = load()
    backend = BACKENDS.get(params.round.backend, params.distributions)
    emit(backend.serve(Settings.from_env(), params=params, port=port))


@app.command("import", rich_help_panel="Annotate")
def import_(
    corpus: CorpusName,
    files: Annotated[
        list[Path], argument("the files of the dataset, or its folder of pictures", "FILE...", exists=True)
    ],
    *,
    mapping: Annotated[
        str | None,
        option(
            "the column mapping: a name in pipelines/annotate/imports/mappings, or a file; default: "
            "corpora/CORPUS/mapping.yaml; a file that is not there is proposed from FILE"
        ),
    ] = None,
    pictures: Annotated[
        Path | None,
        option("the folder of the pictures that FILE names; default: that of FILE", exists=True, file_okay=False),
    ] = None,
    dry_run: Annotated[
        bool, option("read the files, compare their label counts with the paper's and write nothing", "--dry-run")
    ] = False,
    allow_bad: Annotated[
        float, option("the share of rows that may be invalid, which are left out and counted", min=0, max=1)
    ] = 0.01,
) -> None:
    """Import labels of your own, or a published dataset, into a corpus; the parameters are those of its branch."""
    options = {"dry_run": dry_run, "allow_bad": allow_bad, "pictures": pictures}
    report, step = imported(corpus, files, mapping=mapping, **options)
    typer.echo(step, err=True)
    emit(report)


def require_readable(corpus: str, file: Path) -> None:
    """Refuse labels that the mapping of a corpus of one's own does not fit, before its posts are collected."""
    from pipelines.annotate.imports import imports

    root = project_root()
    if (mapping := root / CORPORA / corpus / "mapping.yaml").is_file():
        imports.check(corpus, mapping, files=[file], root=root)


def imported(
    corpus: str, files: list[Path], *, mapping: str | None = None, **options: Any
) -> tuple[dict[str, Any], str]:
    """Import files, and print what was found; return the report and a sentence with the next command."""
    from pipelines.annotate.imports import imports, propose
    from pipelines.annotate.imports.mapping import read
    from pipelines.collect.month import Window
    from pipelines.core.taxonomy import load as scheme_of
    from pipelines.workspace.clone import workspace

    own = Path(CORPORA, corpus, "mapping.yaml")
    with opened() as (settings, vault), workspace(settings, folders=[CORPORA, "schemes"]) as clone:
        places = (root / own for root in (project_root(), clone.path))
        mapping = mapping or str(next((path for path in places if path.is_file()), own))
        params, root = load(clone.path), clone.path
        section = params.corpora[corpus]
        # another name than a file's is one that is misspelt
        if Path(mapping).suffix == ".yaml" and not Path(mapping).exists():
            path = Path(mapping) if Path(mapping).parent.is_dir() else Path(own.name)
            scheme = scheme_of(section.scheme, root=root)
            # one that no backfill writes
            before = f"{Window.from_key(section.first_month).start - timedelta(days=1):%Y-%m}"
            text = propose.mapping_text(files, scheme=scheme, content=section.content, month=before)
            if not path.exists():  # one that is edited already
                path.write_text(text)
            raise ConfigError("NoMapping", corpus=corpus, path=path, files=" ".join(map(shlex.quote, map(str, files))))
        options |= {"files": files, "mapping": mapping, "params": params, "settings": settings, "vault": vault}
        report = imports.run(corpus, **options, now=now(), root=root)
        typer.echo(imports.sentence(report, pictures=section.content == "images"), err=True)
        return report, imports.next_step(report, mapping=read(mapping, root=root), params=params)


@app.command("agreement-report", rich_help_panel="Annotate")
def agreement_report(
    corpus: Annotated[
        str | None,
        argument("the corpus; default: only the tables of the papers", "[CORPUS]", **checked("corpus")),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the inter-annotator agreement that the label schemes' papers print and, beside it, that of a corpus."""
    from pipelines.annotate.manifest import opened as rounds_of
    from pipelines.evaluate.report import agreement_tables
    from pipelines.operate import tasks
    from pipelines.workspace.publish import head

    if corpus is None:
        show_sheets(list(agreement_tables.paper_tables(root=project_root())), as_json=as_json)
        return
    settings = Settings.from_env()
    at: dict[str, Any] = {"base": head(settings), "run": "agreement-report", "results": []}
    with doing("measuring agreement"), tasks.stage_run(settings, **at) as (clone, context):
        if rounds_of(clone.path, corpus):
            # the answers that were pulled since the stage ran last are measured, too
            clone.take(context.receive([tasks.reproduce(f"agreement@{corpus}", context=context)]))
        sheets, annotated = agreement_tables.of_corpus(clone.path, corpus=corpus)
    show_sheets(sheets, as_json=as_json, note="" if annotated else f"Corpus {corpus} has no human annotations yet.")


rounds = group("Open and close annotation rounds, import their answers, adjudicate undecided items.")
app.add_typer(rounds, name="round", rich_help_panel="Annotate")

Name = Annotated[str, argument("an annotation round of the corpus's protocol, such as calibration", "ROUND")]


@rounds.command("open")
def open_(
    corpus: CorpusName,
    name: Name,
    dry_run: Annotated[bool, option("count the items that would be drawn; change nothing", "--dry-run")] = False,
    backend: Annotated[
        str | None, option("what people label with: xlsx, csv, label_studio, files; default: round.backend", "--as")
    ] = None,
    annotators: Annotated[
        str, option("the pseudonyms of the annotators, such as anna,ben; default: round.annotators")
    ] = "",
) -> None:
    """Draw the items of an annotation round and fill each annotator's queue; repeat the command if interrupted."""
    from pipelines.annotate.rounds import round as rounds

    people = [person.strip() for person in annotators.split(",") if person.strip()]
    stated: dict[str, Any] = {"dry_run": dry_run, "backend": backend, "annotators": people}
    _run_round(lambda site: rounds.open_round(site, corpus, name, **stated), what="drawing and filling queues")


@rounds.command("status")
def status(
    corpus: CorpusName,
    name: Annotated[str | None, argument("the annotation round to show; default: all", "[ROUND]")] = None,
) -> None:
    """Show the status of annotation rounds: each annotator's unanswered items and the addresses of the queues."""
    from pipelines.annotate.rounds import round as rounds

    _run_round(lambda site: rounds.status(site, corpus, name), what="reading queues")


@rounds.command("pull")
def pull(corpus: CorpusName, name: Name) -> None:
    """Import the annotators' and the adjudicator's answers of a round, and refill the queues up to the daily cap."""
    from pipelines.annotate.rounds import round as rounds

    _run_round(lambda site: rounds.pull(site, corpus, name), what="reading queues")


@rounds.command("adjudicate")
def adjudicate(corpus: CorpusName, name: Name) -> None:
    """End the annotation of a round, and queue its undecided items for the adjudicator without annotators' names."""
    from pipelines.annotate.rounds import round as rounds

    _run_round(lambda site: rounds.adjudicate(site, corpus, name), what="queueing undecided items")


@rounds.command("close")
def close(
    corpus: CorpusName,
    name: Name,
    *,
    gold: Annotated[bool, option("whether the round's labels become gold labels", "--gold/--no-gold")],
    reason: Annotated[str, option("the reason for --gold or --no-gold as a short code, such as agreement-sufficient")],
    abandon: Annotated[
        bool, option("close the round even if items are undecided; these get no gold label", "--abandon")
    ] = False,
    dry_run: Annotated[
        bool, option("show the round's status instead of closing it; change nothing", "--dry-run")
    ] = False,
) -> None:
    """Import the last answers, record whether the labels become gold, and delete the round's annotation queues."""
    from pipelines.annotate.rounds import round as rounds

    _run_round(
        lambda site: rounds.close(site, corpus, name, go_on=gold, reason=reason, abandon=abandon, dry_run=dry_run),
        what="importing answers and removing queues",
    )


By = Annotated[str, option("your pseudonym in the round, such as annotator-1", "--by")]


@rounds.command("describe")
def describe(
    corpus: CorpusName,
    name: Name,
    file: Annotated[Path, argument("a CSV: item, description, note", "FILE", **EXISTING)],
    by: By,
) -> None:
    """Seal descriptions and notes of a pilot's items; a changed text needs a new approval."""
    from pipelines.annotate.rounds import descriptions

    _run_round(lambda site: descriptions.describe(site, corpus, name, file=file, by=by), what="sealing descriptions")


@rounds.command("approve")
def approve_descriptions(corpus: CorpusName, name: Name, by: By) -> None:
    """Approve, as a second annotator, the descriptions of a pilot that others wrote."""
    from pipelines.annotate.rounds import descriptions

    _run_round(lambda site: descriptions.approve(site, corpus, name, by=by), what="approving descriptions")


@rounds.command("descriptions")
def show_descriptions(
    corpus: CorpusName,
    name: Name,
    to: Annotated[Path, option("a new file that only you can read; remove it afterwards", "--to", metavar="FILE")],
) -> None:
    """Write a pilot's items with their descriptions and notes to a private file, to fill in or to review."""
    from pipelines.annotate.rounds import descriptions

    _run_round(lambda site: descriptions.export(site, corpus, name, to=to), what="reading descriptions")


def _run_round(command: Callable[[RoundSite], dict[str, Any]], *, what: str) -> None:
    from pipelines.annotate.rounds.store import RoundSite

    with opened() as (settings, vault), doing(what):
        result = command(RoundSite(settings, vault, now()))
    for person, cells in result.get("rejected", {}).items():
        lines = [*cells[:SHOWN], *([f"and {len(cells) - SHOWN} more"] if len(cells) > SHOWN else [])]
        typer.echo("\n".join(f"{person}: not taken: {line}" for line in lines), err=True)
        result["rejected"][person] = len(cells)
    emit(result)
