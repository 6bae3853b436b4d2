"""Define the command that declares a corpus of one's own in a folder of the checkout."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.options import EXISTING, argument, option
from pipelines.cli.shared import doing, emit
from pipelines.core.config.base import CORPORA
from pipelines.core.config.settings import Settings, set_of_home
from pipelines.core.errors import ConfigError
from pipelines.core.process import now, private_home

if TYPE_CHECKING:
    from pipelines.core.config.params import Params
    from pipelines.core.taxonomy import Scheme
    from pipelines.workspace.declare import Question

app = typer.Typer()
# What a live source needs beside the ethics approval, which every source needs.
ACCESS = {
    "access_basis": "Terms on which the source may be read, such as the name of an agreement",
    "approval": "Decision of your data protection officer or board, such as its number",
    "expires": "Day from which the source may no longer be read, YYYY-MM-DD",
    "retention_days": "Number of days for which content is kept",
}
ETHICS = "Ethics approval: the board and its reference, or who decided that none is needed"
CHECKSUMS = 'for f in *.zst; do [ -f "$f.sha256" ] || sha256sum "$f" > "$f.sha256"; done'
# The languages that the filter of collected posts keeps.
LANGUAGES = ("en",)


def asked(value: str | None, question: str, *, name: str, default: str | None = None) -> str:
    """Return an option's value, else what a person at the terminal answers, else the default."""
    if value is None and sys.stdin.isatty():
        value = str(typer.prompt(question, default=default, err=True))
    value = default if value is None else value.strip()
    if not value and default != "":
        raise ConfigError("NotDeclared", option=f"--{name}", detail=f"is needed. {question}")
    return str(value)


def listed(text: str) -> list[str]:
    """Return the names of a list with commas."""
    return [name for part in text.split(",") if (name := part.strip())]


@app.command(rich_help_panel="Repository")
def new(
    name: Annotated[str, argument("the name of the new corpus: lower-case letters, digits and _", "NAME")],
    *,
    content: Annotated[str | None, option("what is labelled: texts or images")] = None,
    subreddits: Annotated[str | None, option("the subreddits to read, joined by commas")] = None,
    source: Annotated[str | None, option("where posts come from: an entry of section sources; default: dump")] = None,
    dump: Annotated[
        Path | None, option("the folder with dumps (*.zst); written to corpus.env of CORPUS_HOME as CORPUS_DUMPS")
    ] = None,
    languages: Annotated[str, option("the languages of posts that are kept, joined by commas")] = ",".join(LANGUAGES),
    label: Annotated[
        list[str] | None, option('a label and its definition, NAME="one sentence"; give the option once for each')
    ] = None,
    scheme: Annotated[
        Path | None, option("a label scheme, in place of --label: its questions, labels and rules", **EXISTING)
    ] = None,
    several: Annotated[bool, option("with --label: an item may have several labels, or none", "--several")] = False,
    labels: Annotated[
        Path | None,
        option("a file of labels, from which columns and labels are proposed; it is not copied", **EXISTING),
    ] = None,
    id_column: Annotated[str | None, option("the column of --labels with Reddit's id or address of a post")] = None,
    label_column: Annotated[
        list[str] | None, option("a column of --labels with labels; give the option once for each question")
    ] = None,
    ethics: Annotated[str | None, option("the board that approved the research, and its reference")] = None,
    access_basis: Annotated[str | None, option("of a live source: the terms on which it may be read")] = None,
    approval: Annotated[str | None, option("of a live source: the decision that approved reading it")] = None,
    expires: Annotated[str | None, option("of a live source: the day from which it may no longer be read")] = None,
    retention_days: Annotated[str | None, option("of a live source: the days for which content is kept")] = None,
    first_month: Annotated[str | None, option("the first month to collect, YYYY-MM; default: of the dumps")] = None,
    last_month: Annotated[str | None, option("the last month, or null for no end; default: of the dumps")] = None,
    model: Annotated[
        list[str] | None, option("a model to train, of section models in catalogue.yaml; the first is registered")
    ] = None,
    dry_run: Annotated[bool, option("print the files that would be written; write nothing", "--dry-run")] = False,
) -> None:
    """Declare a corpus of your own: write its label scheme, parameters and columns of labels to corpora/NAME."""
    from pipelines.annotate.imports import imports
    from pipelines.core.config.added_corpora import MODELS
    from pipelines.core.config.params import load
    from pipelines.workspace import declare

    params, settings = load(), Settings.from_env()
    _require_new(name, params=params, settings=settings, languages=languages)
    kind = asked(content, "What is labelled: texts or images", name="content", default="texts")
    if kind not in declare.ITEMS:
        raise ConfigError("NotDeclared", option="--content", detail=f"is one of {', '.join(declare.ITEMS)}")
    corpus, dumps = _posts(
        kind,
        subreddits=subreddits,
        source=source,
        dump=dump,
        months=(first_month, last_month),
        params=params,
        settings=settings,
    )
    access = {"access_basis": access_basis, "approval": approval, "expires": expires, "retention_days": retention_days}
    approved = _approved(corpus["source"], ethics=ethics, access=access, params=params)
    labels = labels if labels or label or scheme else _labels_file()
    chosen = Columns(labels, scheme, id_column, tuple(label_column or ()))
    questions, texts = chosen.texts(name, kind, defined=_defined(label), several=several)
    texts[declare.PROFILE] = declare.profile_text(
        name, corpus=corpus, sources=approved, models=model or MODELS[kind], tasks=questions, others=[*params.corpora]
    )

    def check(root: Path) -> None:
        imports.check(name, root / CORPORA / name / declare.MAPPING, files=[labels] if labels else [], root=root)

    declare.declare(name, texts, checkout=Path(), today=now().date(), check=check, dry_run=dry_run)
    if dry_run:
        typer.echo("\n".join(f"--- {CORPORA}/{name}/{file}\n{text}" for file, text in texts.items()))
        return
    if dumps:
        private_home(settings.home)
        set_of_home(settings.home, {"CORPUS_DUMPS": str(dumps)})
    typer.echo("Next:", err=True)
    if declare.UNDEFINED.partition("{")[0] in texts[declare.SCHEME]:
        typer.echo(f"  $EDITOR {CORPORA}/{name}/{declare.SCHEME}  # define the labels", err=True)
    if dumps and not all(path.with_name(f"{path.name}.sha256").is_file() for path in dumps.glob("*.zst")):
        typer.echo(f"  (cd {shlex.quote(str(dumps))} && {CHECKSUMS})  # of files that are as published", err=True)
    months = f"{corpus['first_month']}..{corpus['last_month'] or corpus['first_month']}"
    more = f" --labels {shlex.quote(str(labels))}" if labels else ""
    typer.echo(f"  corpus run {name} --months {months}{more}", err=True)
    emit({"folder": f"{CORPORA}/{name}", "questions": {key: len(each.labels) for key, each in questions.items()}})


def _require_new(name: str, *, params: Params, settings: Settings, languages: str) -> None:
    """Refuse a corpus that exists, or whose posts would not be kept."""
    from pipelines.workspace import declare, repository
    from pipelines.workspace.git import branches

    declare.require_new(name, params=params, checkout=Path())
    if there := branches(settings.repo):
        repository.adopt(settings, there, profile=name)
    if unread := ", ".join(each for each in listed(languages) if each not in LANGUAGES):
        raise ConfigError(
            "NotDeclared", option="--languages", detail=f"{unread}: only posts in {', '.join(LANGUAGES)} are kept"
        )


def _posts(
    content: str,
    *,
    subreddits: str | None,
    source: str | None,
    dump: Path | None,
    months: tuple[str | None, str | None],
    params: Params,
    settings: Settings,
) -> tuple[dict[str, Any], Path | None]:
    """Return the entry of section corpora, whose sources are a list, and the folder of its dumps."""
    subs = _subreddits(asked(subreddits, "Subreddits to read", name="subreddits"))
    known = ", ".join(params.sources)
    sources = listed(asked(source, f"Source of posts ({known})", name="source", default="dump"))
    if strange := {*sources} - params.sources.keys():
        raise ConfigError("UnknownName", kind="source", name=min(strange), known=known)
    folder, there = None, list[str]()
    if "dump" in sources:
        text = asked(str(dump) if dump else None, "Folder with the dumps", name="dump", default=str(settings.dumps))
        folder = Path(text).expanduser().resolve()
        there = _months(folder, subreddits=subs, params=params)
    begin = asked(months[0], "First month, YYYY-MM", name="first-month", default=min(there, default=None))
    end = asked(months[1], "Last month, or null for no end", name="last-month", default=max(there, default="null"))
    corpus = {"content": content, "subreddits": subs, "source": sources, "first_month": begin}
    return corpus | {"last_month": None if end == "null" else end}, folder


def _subreddits(text: str) -> list[str]:
    """Return the names of subreddits, each once, from a list of names, of r/names or of their addresses."""
    names: dict[str, str] = {}
    for each in listed(text):
        name = re.sub(r"^(https?://[^/]*reddit\.com)?/?(r/)?", "", each).rstrip("/")
        if not re.fullmatch(r"\w{2,32}", name, re.ASCII):
            detail = f"'{each}' is no subreddit's name; join several by commas"
            raise ConfigError("NotDeclared", option="--subreddits", detail=detail)
        names.setdefault(name.lower(), name)
    return [*names.values()]


def _months(folder: Path, *, subreddits: Sequence[str], params: Params) -> list[str]:
    """Return the months of the dumps of subreddits in a folder; refuse a folder without one."""
    from pipelines.collect.sources.dump import Dump, DumpEntry, survey
    from pipelines.core.config.base import fitted

    with doing("reading the dumps"):
        entry = fitted(DumpEntry, params.sources[Dump.name], key=f"sources.{Dump.name}")
        paths, months = survey(folder, subreddits=subreddits, params=entry)
    if not folder.is_dir():
        raise ConfigError("NotDeclared", option="--dump", detail=f"there is no folder {folder}; it holds the *.zst")
    if not paths:
        names = ", ".join(path.name for path in sorted(folder.glob("*.zst"))[:5]) or "no *.zst"
        wanted = ", ".join(f"{each}_submissions.zst" for each in subreddits)
        raise ConfigError(
            "NotDeclared", option="--dump", detail=f"{folder} has {names}, but neither RS_YYYY-MM.zst nor {wanted}"
        )
    return months


def _approved(
    sources: Sequence[str], *, ethics: str | None, access: Mapping[str, str | None], params: Params
) -> dict[str, dict[str, Any]]:
    """Return by source on whose word it is read; a live source needs more than the ethics approval."""
    board: dict[str, Any] = {"ethics": asked(ethics, ETHICS, name="ethics")}
    live = [name for name in sources if params.sources[name].live]
    more = {k: asked(access[k], text, name=k.replace("_", "-")) for k, text in ACCESS.items()} if live else {}
    if "retention_days" in more and not more["retention_days"].isdigit():
        raise ConfigError("NotDeclared", option="--retention-days", detail="is a number of days")
    terms = more | {"retention_days": int(more["retention_days"])} if more else {}
    return {name: board | (terms if name in live else {}) for name in sources}


def _defined(labels: Sequence[str] | None) -> dict[str, str]:
    """Return the definitions of labels by name, as options or a person at the terminal gave them."""
    defined = {}
    for text in labels or ():
        label, _, definition = text.partition("=")
        if not label.strip():
            raise ConfigError("NotDeclared", option="--label", detail='needs NAME="one sentence"')
        defined[label.strip()] = definition.strip().strip('"')
    return defined


@dataclass(frozen=True)
class Columns:
    """What is known of the labels before any is read: the file, the scheme, and the names of columns."""

    file: Path | None
    scheme: Path | None
    ids: str | None
    named: tuple[str, ...]

    def texts(
        self, name: str, content: str, *, defined: dict[str, str], several: bool
    ) -> tuple[dict[str, Question], dict[str, str]]:
        """Return the questions that models answer, and the texts of scheme and mapping."""
        from pipelines.core.taxonomy import load_file
        from pipelines.workspace import declare

        scheme = load_file(self.scheme.resolve()) if self.scheme else None
        ids, questions = self._read(scheme, defined=defined, several=several) if self.file else ("id", {})
        if not self.file:
            questions = {key: declare.Question({}, column=key) for key in scheme.categories} if scheme else {}
            questions = questions or {"labels": _typed(defined, several=several)}
        written = declare.scheme_text(name, questions, content=content)
        if self.scheme:
            written = re.sub(r"(?m)^name:.*$", f"name: {name}", self.scheme.read_text(), count=1)
        mapping = declare.mapping_text(name, questions, columns=[ids])
        predicted = {k: v for k, v in questions.items() if scheme is None or scheme.categories[k].predicted}
        return predicted, {declare.SCHEME: written, declare.MAPPING: mapping}

    def _read(
        self, scheme: Scheme | None, *, defined: Mapping[str, str], several: bool
    ) -> tuple[str, dict[str, Question]]:
        from pipelines.annotate.imports import propose
        from pipelines.annotate.imports.published_files import read_files

        read, *_ = read_files([Path(str(self.file))])
        has = f"(the file has {', '.join(sorted(read.columns))})"
        ids = propose.id_column(read, given=self.ids)
        ids = ids or propose.id_column(
            read, given=asked(None, f"Column with the ids at Reddit {has}", name="id-column")
        )
        found = propose.label_columns(read, given=self.named, without=str(ids))
        if scheme:
            return str(ids), propose.of_scheme(read, found, scheme=scheme)
        if not self.named and not propose.certain(read, found):
            given = listed(asked(None, f"Columns with labels {has}", name="label-column"))
            found = propose.label_columns(read, given=given, without=str(ids))
        return str(ids), propose.questions(read, found, defined=defined, several=several)


def _labels_file() -> Path | None:
    text = asked(None, "CSV file of labels (empty: none)", name="labels", default="")
    if text and not Path(text).expanduser().is_file():
        raise ConfigError("NotDeclared", option="--labels", detail=f"there is no file {text}")
    return Path(text).expanduser() if text else None


def _typed(defined: dict[str, str], *, several: bool) -> Question:
    """Return the question with the given labels, else those that a person types."""
    from pipelines.workspace.declare import Question

    if not defined and sys.stdin.isatty():
        while label := str(typer.prompt("Label (empty: no more)", default="", show_default=False, err=True)).strip():
            defined[label] = str(typer.prompt(f"An item is {label} when", default="", show_default=False, err=True))
        several = typer.confirm("May an item have several labels", default=several, err=True)
    if len(defined) < 2 - several:
        detail = 'is needed: a file with labels; or at least two --label NAME="one sentence", or --scheme FILE'
        raise ConfigError("NotDeclared", option="--labels", detail=detail)
    return Question(defined, several, column="labels")
