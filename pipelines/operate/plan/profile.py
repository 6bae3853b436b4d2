"""Plan a paper's profile before anything starts: what each row runs, asks and takes, and what is missing here.

The paper's file (``papers/<name>.yaml``, ``plan``) names the table of its rows; ``besides`` are what its other tables
need: ensembles, tuned models, and moderation systems. Nothing is sent, downloaded or computed on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.collect.read.engine import ENGINES
from pipelines.core.config.label import RemoteLabeller
from pipelines.core.config.models import FitRows
from pipelines.core.config.params import FILES, Params, load, parse_all, validate
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as load_scheme
from pipelines.datasets.example import TEST, TRAIN
from pipelines.evaluate.moderation.moderator import moderator_of
from pipelines.evaluate.report.papers import Paper, available, number
from pipelines.llm.vendor import Provider
from pipelines.metrics.label_tables import UNDEFINED, Sheet
from pipelines.models.kind import Kind, spec, weights
from pipelines.operate.backfill import assumed_kept, months_of, reading_usd
from pipelines.operate.plan import needs
from pipelines.operate.plan.cost import PICTURE, RequestPlan, spent_usd, typical
from pipelines.operate.plan.needs import Gap, HardwareNeed
from pipelines.workspace.clone import BRANCH, history
from pipelines.workspace.git import branches, git
from pipelines.workspace.profile import texts_at

Json = Mapping[str, Any]

ASSUMED = (
    "memory and disk of fine-tuning are those of `corpus plan train`; other rows: parameters times bytes, and 6 GB",
    "hours are of one run after another, on GPUs of about an A100's speed; a server's are its own use",
    "an item is a post of 1,100 characters or one picture; `corpus plan cost CORPUS` counts a corpus that is split",
    "prices are those of `corpus plan cost`; servers of your own cost nothing",
)


NOTHING = RequestPlan()


class PaperRow(NamedTuple):
    """A row of a paper's table: its key (the entry of ``params.models``), its name, and the tasks that it has."""

    key: str
    name: str
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class RowPlan:
    """What a row runs and needs, and what is missing; it is runnable if nothing is."""

    row: str
    entry: str
    weights: str | None
    runs: str
    requests: RequestPlan = NOTHING
    hardware: HardwareNeed = field(default_factory=HardwareNeed)
    missing: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()


def paper_of(profile: str, *, root: Path) -> Paper:
    """Return the paper that a profile reproduces, whose file has the first word of its name, as of ``NAME-2027``."""
    papers = {name: paper for name, paper in available(root=root).items() if paper.plan.rows}
    if (name := profile.partition("-")[0]) not in papers:
        raise ConfigError("UnknownName", kind="paper", name=name, known=", ".join(papers))
    return papers[name]


def paper_rows(paper: Paper) -> list[PaperRow]:
    """Return the rows of the table that a paper's plan names, in the paper's order, without its ensembles."""
    tasks: dict[str, dict[str, None]] = {}
    for key, binding, cell in paper.tables[paper.plan.rows].printed():
        if number(cell) is not None and key not in paper.plan.ensembles:
            tasks.setdefault(key, {})[binding["task"]] = None
    return [PaperRow(key, paper.names.get(key, key), tuple(found)) for key, found in tasks.items()]


@dataclass(frozen=True)
class Planning:
    """A paper's profile on this machine: its parameters, the environment, the day and the GPUs of this host."""

    paper: Paper
    params: Params
    settings: Settings
    scheme: Scheme
    today: date
    here: tuple[float, ...]

    @property
    def corpus(self) -> str:
        """The corpus that the paper is about: the first with its label scheme."""
        corpora = {name: corpus.scheme for name, corpus in self.params.corpora.items()}
        found = next((name for name, scheme in corpora.items() if scheme == self.paper.scheme), None)
        if found is None:
            raise ConfigError(
                "UnknownName", kind="corpus with scheme", name=self.paper.scheme, known=", ".join(corpora)
            )
        return found

    @property
    def images(self) -> bool:
        """Whether the corpus's items are images."""
        return self.params.corpora[self.corpus].content == "images"

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that the corpus is collected from; none, if its posts come with the published labels."""
        imported = self.paper.has_posts and self.params.gold[self.corpus].published
        return () if imported else tuple(self.params.corpora[self.corpus].sources)

    @property
    def of_gb(self) -> float:
        """The GPU memory to count in: that of this host's smallest GPU, else the usual one."""
        return min(self.here, default=needs.USUAL_GB)

    def items(self, *splits: str) -> int:
        """Return how many items the splits have by their sizes, or by their ratios of the sample."""
        section, sample = self.params.split[self.corpus], self.params.sample[self.corpus].size
        sizes: Mapping[str, float] = section.sizes or {
            name: sample * share / sum(section.ratios.values()) for name, share in section.ratios.items()
        }
        return round(sum(sizes.get(split, 0) for split in splits))

    def plan(self, row: PaperRow) -> RowPlan:
        """Return what the profile runs for a row of the paper."""
        if row.key not in self.params.models:
            gap = Gap(f"entry {row.key} in section models", "add it to catalogue.yaml or the profile")
            return RowPlan(row.name, row.key, None, "nothing", missing=(gap,))
        model = spec(self.params, row.key)
        if model.fitted:
            return self._trained(row, model)
        if labellers := model.labellers(self.params):
            return self._voted(row, labellers[0]) if model.votes else self._prompted(row, model, labellers[0])
        items = self.items(*self.judged)
        tokens = items * self.params.votes.context_tokens
        need = needs.asked(model.named, tokens=tokens, of_gb=self.of_gb)
        return self._row(row, f"predict: {items:,} {self.scheme.items}", {self.compared: row.key}, need=need)

    @property
    def judged(self) -> tuple[str, ...]:
        """The splits that models without a fit are asked about: all but train."""
        return tuple(name for name in self.params.split[self.corpus].ratios if name != TRAIN)

    @property
    def compared(self) -> str:
        """The parameter that lists the models that are compared without a fit."""
        return f"predict.rows.{self.corpus}"

    @property
    def fitted(self) -> FitRows:
        """What is fitted on the corpus."""
        return self.params.train.rows[self.corpus]

    def besides(self) -> Iterator[RowPlan]:
        """Yield what the paper's other tables need: ensembles, tuned models, moderation systems, and a paid OCR."""
        yield from self._ensembles()
        yield from self._tuned()
        for name in self.params.moderation.systems.get(self.corpus, ()):
            yield self._moderated(name)
        described, engine = self.params.corpora[self.corpus], self.params.images.ocr.engine
        if self.images and ENGINES.get(engine, self.params.distributions).remote:
            last = described.last_month or f"{self.today:%Y-%m}"
            pictures = assumed_kept(described, months=len(months_of(described.first_month, last)))
            cost = reading_usd(self.params, pictures=pictures)
            text = f"images: about {pictures:,} pictures, outside votes.budget_usd"
            yield RowPlan(f"OCR: {engine}", engine, None, text, RequestPlan(pictures, 0, cost, cost))

    def _voted(self, row: PaperRow, labeller: str) -> RowPlan:
        items, section = self.params.sample[self.corpus].size, self.params.votes
        known = section.canaries * -(-items // section.shard_size)
        asked = self._typical(
            labeller, row.tasks[:1], items + known, examples=self.params.few_shot.examples[self.corpus]
        )
        runs = f"votes: {items:,} {self.scheme.items}, train for the ensemble; predict"
        listed = {f"votes.labellers.{self.corpus}": labeller, self.compared: row.key}
        return self._row(row, runs, listed, asked, labeller=labeller)

    def _prompted(self, row: PaperRow, model: Any, labeller: str) -> RowPlan:
        items, times = self.items(*(self.judged if "validation" in model.splits else (TEST,))), model.runs or 1
        asked = self._typical(labeller, row.tasks, items * times, examples=model.examples, most=model.max_output_tokens)
        runs = f"predict: {len(row.tasks)} × {items:,} items × {times} runs"
        return self._row(row, runs, {self.compared: row.key}, asked, labeller=labeller)

    def _trained(self, row: PaperRow, model: Kind) -> RowPlan:
        labeller, seeds, asked = model.rationales, len(self.fitted.seeds), RequestPlan()
        need = needs.encoder(
            [base for base, _ in model.bases], items=self.items(TRAIN), epochs=getattr(model, "epochs", 1),
            runs=len(row.tasks) * seeds, of_gb=self.of_gb,
        )  # fmt: skip
        runs = f"train: {len(row.tasks)} tasks × {seeds} seeds"
        if labeller:
            asked = self._typical(labeller, ("",), self.items(*self.params.split[self.corpus].ratios), explain=True)
            runs += f"; rationales by {labeller}"
        return self._row(row, runs, {f"train.rows.{self.corpus}.models": row.key}, asked, labeller=labeller, need=need)

    def _ensembles(self) -> Iterator[RowPlan]:
        """Yield the plans of the paper's ensembles, which aggregate the votes of rows above and ask nothing."""
        for key in self.paper.plan.ensembles:
            row = PaperRow(key, self.paper.names.get(key, key), ())
            entry, listed = self.params.models.get(key), {self.compared: key}
            if entry and entry.silver:
                yield self._row(row, "silver; predict", listed, ensemble=entry.silver)
            else:
                gap = Gap(f"entry {key} of kind ensemble in section models", "add it to catalogue.yaml")
                yield self._row(row, "silver; predict", listed, gaps=(gap,))

    def _tuned(self) -> Iterator[RowPlan]:
        runs = len(self.fitted.seeds)
        table = self.paper.tables.get(self.paper.plan.tuned)
        for name, base in table.given.items() if table else ():
            key, _, subset = name.rpartition("-")
            row, model = PaperRow(key, self.paper.names.get(name, name), ()), None
            if key in self.params.models:
                model = spec(self.params, key)
            if model is None or not (model.fitted and model.large):
                gap = Gap(f"entry {key} of kind sft in section models", "add it to catalogue.yaml")
                yield RowPlan(row.name, key, None, "nothing", missing=(gap,))
                continue
            posts, rows = self.items(TRAIN), f"train.rows.{self.corpus}"
            need = needs.tuned(key, entry=model, params=self.params, posts=posts, runs=runs, of_gb=self.of_gb)
            listed = {f"{rows}.models": key, f"{rows}.subsets": subset, self.compared: base}
            text = f"train on {subset}, {runs} seeds; predict"
            yield self._row(row, text, listed, need=need, ensemble=self.fitted.ensemble or "")

    def _moderated(self, name: str) -> RowPlan:
        spec, items = moderator_of(name, params=self.params), self.params.sample[self.corpus].size
        cost = round(items * spec.usd(PICTURE), 2)
        model = getattr(spec, "model", None)
        at: dict[str, Any] = {"params": self.params, "settings": self.settings, "today": self.today}
        gaps = tuple(needs.access(spec.provider, serve=model or "", **at))
        asked = RequestPlan(items, 0, cost, cost)
        return RowPlan(f"Moderation: {name}", name, model, f"moderation: {items:,} items", asked, missing=gaps)

    def provider(self, name: str) -> Provider:
        """Return a provider with the address and key that are set here."""
        return Provider.of(name, params=self.params, settings=self.settings)

    def _typical(self, labeller: str, tasks: Sequence[str], items: int, **prompt: Any) -> RequestPlan:
        options: dict[str, Any] = {"scheme": self.scheme, "params": self.params, "picture": self.images}
        return typical(labeller, tasks=tasks, items=items, **options, **prompt)

    def _row(
        self,
        row: PaperRow,
        runs: str,
        listed: Mapping[str, str],
        asked: RequestPlan = NOTHING,
        *,
        labeller: str | None = None,
        need: HardwareNeed | None = None,
        ensemble: str = "",
        gaps: Sequence[Gap] = (),
    ) -> RowPlan:
        """Return the plan of a row with all that it lacks.

        Args:
            listed: the names that sections of the parameters must list.
            asked: the requests to its labeller, if it has one.
            labeller: the labeller's name.
            need: what its models take on this host; ``None`` if it loads none here.
            ensemble: the ensemble whose members' votes it reads.
        """
        lacks, notes, params = list(gaps), list[str](), self.params
        at: dict[str, Any] = {"params": params, "settings": self.settings, "today": self.today}
        for member in params.ensembles[ensemble].members if ensemble in params.ensembles else ():
            lacks += needs.served(member, **at)[0]
        if labeller:
            more, notes = needs.served(labeller, **at)
            lacks += more
        if need:
            lacks += [*needs.bases(row.key, params=params), *needs.gpus(need, here=self.here)]
        for place, name in listed.items():
            if name not in _value(params, place):
                lacks.append(Gap(f"{name} in {place}", needs.put(place, f"'[…, {name}]'")))
        model, named = (spec(params, row.key) if row.key in params.models else None), weights(params, row.key)
        if model and not self.paper.stands_for(row.key, base=named):
            own = "members" if model.silver else "model"
            what = f"the row's own {own}: entry {row.key} has {named}"
            lacks.append(Gap(what, "give other weights another entry's name"))
        if model and model.note:
            notes.append(model.note)
        served = params.labellers[labeller] if labeller and need is None else None
        if isinstance(served, RemoteLabeller) and self.provider(served.provider).own_server:
            need = needs.asked(served.model, tokens=asked.tokens, of_gb=self.of_gb)
        unique = tuple(dict.fromkeys(lacks)), tuple(dict.fromkeys(notes))
        return RowPlan(row.name, row.key, named, runs, asked, need or HardwareNeed(), *unique)


def _value(params: Params, place: str) -> Any:
    """Return the value of a parameter with a dotted key; empty if there is none."""
    value: Any = params
    for name in place.split("."):
        value = value.get(name, ()) if isinstance(value, dict) else getattr(value, name, ())
    return value


def plan(
    profile: str, *, params: Params, settings: Settings, root: Path, today: date, published: frozenset[str] | None
) -> dict[str, Any]:
    """Return the plan of a paper's profile, whose name begins with the paper's.

    Args:
        published: the files that the corpus branch tracks; ``None`` if there is no corpus repository.

    Returns:
        ``profile``, ``paper``, ``corpus``, ``date``; ``rows`` and ``besides`` (what the paper's other tables
        need): :class:`RowPlan` with ``runnable``; ``missing`` of all rows together; ``needs``: ``keys`` and ``servers``
        (variables), ``consents`` (providers), ``datasets``, ``approvals`` (sources), ``gpu_memory_gb`` (the most of one
        row), ``disk_gb``, ``hours``, ``usd_expected``, ``usd_at_most`` and ``budget_usd``; ``runnable`` (number of
        rows), and ``assumed``.
    """
    paper = paper_of(profile, root=root)
    scheme = load_scheme(paper.scheme, root=root)
    planning = Planning(paper, params, settings, scheme, today, tuple(needs.available()))
    rows, besides = [planning.plan(row) for row in paper_rows(paper)], list(planning.besides())
    together = _together(planning, rows=[*rows, *besides])
    budgeted = sum(row.requests.usd_expected for row in (*rows, *besides) if row.entry != params.images.ocr.engine)
    shared = list(_shared(planning, profile=profile, published=published, usd=budgeted))
    listed, further = ([asdict(row) | {"runnable": not row.missing and not shared} for row in part]
                       for part in (rows, besides))  # fmt: skip
    return {
        "profile": profile,
        "paper": profile.partition("-")[0],
        "corpus": planning.corpus,
        "date": today.isoformat(),
        "rows": listed,
        "besides": further,
        "missing": [asdict(gap) for gap in shared],
        "needs": together,
        "runnable": sum(row["runnable"] for row in listed),
        "assumed": list(ASSUMED),
    }


def _shared(planning: Planning, *, profile: str, published: frozenset[str] | None, usd: float) -> Iterator[Gap]:
    """Yield what all rows lack: the repository, the dataset, approvals, the OCR engine, and the budget."""
    params, settings, corpus = planning.params, planning.settings, planning.corpus
    if published is None:
        yield Gap("the corpus repository", f"corpus init --profile {profile}")
    gold = params.gold[corpus]
    if not gold.truth and gold.published and f"{gold.published}.dvc" not in (published or ()):
        yield Gap(f"access to {planning.paper.dataset}", planning.paper.imported_by.format(corpus=corpus))
    yield from needs.of_corpus(corpus, sources=planning.sources, params=params, today=planning.today)
    # the store is not created by looking at it
    stored = not settings.answers_url.startswith("sqlite:///") or Path(settings.answers_url[10:]).exists()
    spent, budget = spent_usd(settings) if stored else 0.0, params.votes.budget_usd
    if usd > budget - spent:
        what = f"a budget of {usd:.2f} US dollars; votes.budget_usd has {max(0.0, budget - spent):.2f} left"
        yield Gap(what, needs.put("votes.budget_usd", f"{spent + usd:.0f}"))


def _together(planning: Planning, *, rows: Sequence[RowPlan]) -> dict[str, Any]:
    """Return what all rows together need, whether it is there or not."""
    params = planning.params
    entries = [params.models[row.entry] for row in rows if row.entry in params.models]
    named = [(getattr(entry, "labeller", None), entry.rationales, entry.votes) for entry in entries]
    labellers = {name for names in named for name in names if name}
    asked = {getattr(params.labellers.get(str(name)), "provider", None) for name in labellers} - {None}
    asked |= {params.moderators[row.entry].provider for row in rows if row.entry in params.moderators}
    providers = [planning.provider(name) for name in sorted(map(str, asked))]
    hardware = [row.hardware for row in rows]
    command = planning.paper.imported_by.format(corpus=planning.corpus)
    return {
        "keys": [f"{each.variable}_KEY" for each in providers if not each.own_server],
        "servers": [f"{each.variable}_URL" for each in providers if each.own_server or each.vendor.resource],
        "consents": [each.name for each in providers]
        + ([params.images.ocr.engine] if params.images.ocr.engine in params.consents else []),
        "datasets": [{"dataset": planning.paper.dataset, "import": command}],
        "approvals": list(planning.sources),
        "gpu_memory_gb": max(need.memory_gb or 0.0 for need in hardware),
        "gpus": max(need.gpus or 0 for need in hardware),
        "of_gb": planning.of_gb,
        "disk_gb": round(sum({row.weights: row.hardware.disk_gb or 0.0 for row in rows}.values()), 1),
        "hours": round(sum(need.hours or 0.0 for need in hardware), 1),
        "unknown_sizes": sorted(row.entry for row in rows if row.hardware.memory_gb is None),
        "requests": sum(row.requests.requests for row in rows),
        "usd_expected": round(sum(row.requests.usd_expected for row in rows), 2),
        "usd_at_most": round(sum(row.requests.usd_at_most for row in rows), 2),
        "budget_usd": params.votes.budget_usd,
    }


def parameters(profile: str, *, settings: Settings, root: Path) -> tuple[Params, frozenset[str] | None]:
    """Return the parameters for the profile, and the files of the corpus branch below ``annotations``.

    The parameters are those of the corpus if it was created with the profile, else those of ``root`` with the profile;
    the files are ``None`` without a corpus repository.
    """
    own = load(root, profile=profile)
    if BRANCH not in (branches(settings.repo) or {}):
        return own, None
    with history(settings, depth=1) as repository:
        at = ("--git-dir", str(repository))
        texts = texts_at(BRANCH, cwd=repository)
        files = git(*at, "ls-tree", "-r", "--name-only", BRANCH, "annotations").splitlines()
    committed = validate(parse_all(texts), where=FILES[0])
    return committed if committed.profile == profile else own, frozenset(files)


def sheet(plan: Json) -> Sheet:
    """Return the table of all rows of the paper and of what its other tables need."""
    rows = tuple(_cells(row) for row in (*plan["rows"], *plan["besides"]))
    columns = ("Row", "Entry", "Runs", "GPU memory", "Hours", "US dollars", "Runnable")
    return Sheet(f"Profile {plan['profile']}: {len(plan['rows'])} rows of the paper", columns, rows)


def _cells(row: Json) -> tuple[str, ...]:
    need, asked, own = row["hardware"], row["requests"], len(row["missing"])
    memory = need["memory_gb"]
    gpu = UNDEFINED if memory is None else f"{memory:.0f} GB ({need['gpus']} × {need['of_gb']:.0f})" if memory else ""
    hours = UNDEFINED if need["hours"] is None else f"{need['hours']:.1f}" if need["hours"] else ""
    cost = f"{asked['usd_expected']:.2f}" if asked["requests"] else ""
    runnable = "yes" if row["runnable"] else f"no: {own} missing" if own else "no: see below"
    return (row["row"], row["entry"], row["runs"], gpu, hours, cost, runnable)


def lines(plan: Json) -> Iterator[str]:
    """Yield what the profile needs, what is missing with the command that supplies it, notes and assumptions."""
    together = plan["needs"]
    yield f"{plan['runnable']} of {len(plan['rows'])} rows can run here on {plan['date']}."
    yield "Needs:"
    for title in ("keys", "servers", "consents", "approvals"):
        yield f"  {title}: {', '.join(together[title]) or 'none'}"
    yield from (f"  dataset: {each['dataset']}" for each in together["datasets"])
    yield f"  GPUs: {together['gpu_memory_gb']:.0f} GB at once ({together['gpus']} of {together['of_gb']:.0f} GB)"
    yield f"  hours: {together['hours']:.1f} in all, disk: {together['disk_gb']:.0f} GB of base models"
    costs = f"about {together['usd_expected']:.2f} US dollars, at most {together['usd_at_most']:.2f}"
    yield f"  requests: {together['requests']:,}, {costs}; budget {together['budget_usd']:g}"
    gaps: dict[tuple[str, str], list[str]] = {tuple(gap.values()): ["all rows"] for gap in plan["missing"]}
    notes: dict[str, list[str]] = {}
    for row in (*plan["rows"], *plan["besides"]):
        for gap in row["missing"]:
            gaps.setdefault(tuple(gap.values()), []).append(row["row"])
        for note in row["notes"]:
            notes.setdefault(note, []).append(row["row"])
    yield "Missing:" if gaps else "Nothing is missing."
    for (what, command), rows in gaps.items():
        yield f"  {what} ({', '.join(rows)})\n    {command}"
    yield from ("Notes:", *(f"  {note} ({', '.join(rows)})" for note, rows in notes.items())) if notes else ()
    yield from ("Assumed:", *(f"  {text}" for text in plan["assumed"]))
