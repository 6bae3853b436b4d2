"""List the rows of a paper's tables, and what each entry of a profile runs, asks and takes.

A row is one line of FigSIM's Table 3 or CRADLE's Table 4; ``besides`` are what the papers' other tables need: CRADLE's
ensemble and tuned models (Tables 4 and 8), and FigSIM's moderation systems (Table 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from pipelines.config.label import AzureModerator, RemoteLabeller
from pipelines.config.models import EnsembleModel, LocalModel, Model, PromptedModel, SftModel, VotesModel
from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.models import SOURCE_NOTES
from pipelines.profile_plan import hardware, missing_needs, request_plan
from pipelines.profile_plan.hardware import HardwareNeed
from pipelines.profile_plan.missing_needs import Gap
from pipelines.profile_plan.request_plan import RequestPlan
from pipelines.report.papers import printed, stands_for
from pipelines.taxonomy import Scheme

# The corpus that a paper's profile is about.
CORPORA = {"figsim": "memes", "cradle": "posts"}
SEVERITY = "severity"


@dataclass(frozen=True)
class PaperRow:
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
    requests: RequestPlan = field(default_factory=RequestPlan)
    hardware: HardwareNeed = field(default_factory=HardwareNeed)
    missing: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()


def paper_rows(paper: str) -> list[PaperRow]:
    """Return the rows of FigSIM's Table 3 (22) or the models of CRADLE's Table 4 (15), in the paper's order."""
    if paper == "figsim":
        return [_figsim(row) for row in printed(paper)["table_3"]["rows"]]
    return [
        PaperRow(key, name, ("labels",)) for key, name, family, *_ in printed(paper)["table_4"]["rows"]
        if family != "Ensemble"
    ]  # fmt: skip


def _figsim(row: Sequence[object]) -> PaperRow:
    key, name, _, *numbers = row
    tasks = [task for i, task in enumerate(("figurative", SEVERITY, "related")) if numbers[4 * i] is not None]
    return PaperRow(str(key), str(name), tuple(tasks))


@dataclass(frozen=True)
class Planning:
    """A paper's profile on this machine: its parameters, the environment, the day and the GPUs of this host."""

    paper: str
    params: Params
    settings: Settings
    scheme: Scheme
    today: date
    here: tuple[float, ...]

    @property
    def corpus(self) -> str:
        """The corpus that the paper is about."""
        return CORPORA[self.paper]

    @property
    def of_gb(self) -> float:
        """The GPU memory to count in: that of this host's smallest GPU, else the usual one."""
        return min(self.here, default=hardware.USUAL_GB)

    def items(self, *splits: str) -> int:
        """Return how many items the splits have by their sizes, or by their ratios of the sample."""
        section, sample = self.params.split[self.corpus], self.params.sample[self.corpus].size
        sizes: Mapping[str, float] = section.sizes or {
            name: sample * share / sum(section.ratios.values()) for name, share in section.ratios.items()
        }
        return round(sum(sizes.get(split, 0) for split in splits))

    def plan(self, row: PaperRow) -> RowPlan:
        """Return what the profile runs for a row of the paper."""
        spec = self.params.models.get(row.key)
        if spec is None:
            gap = Gap(f"entry {row.key} in section models", "add it to params.yaml or the profile")
            return RowPlan(row.name, row.key, None, "nothing", missing=(gap,))
        found = self._planned(row, spec=spec)
        weights = self.params.weights(row.key)
        gaps, notes = list(found.missing), list(found.notes)
        if not stands_for(self.paper, row.key, base=weights):
            gaps.append(
                Gap(f"the row's own model: entry {row.key} has {weights}", "give other weights another entry's name")
            )
        if told := SOURCE_NOTES.get(spec.kind):
            notes.append(told)
        return replace(found, weights=weights, missing=tuple(dict.fromkeys(gaps)), notes=tuple(dict.fromkeys(notes)))

    def _planned(self, row: PaperRow, *, spec: Model) -> RowPlan:
        if isinstance(spec, PromptedModel):
            return self._prompted(row, spec=spec)
        if isinstance(spec, VotesModel):
            return self._votes(row, spec=spec)
        if isinstance(spec, LocalModel):
            return self._local(row, spec=spec)
        return self._trained(row, spec=spec)

    def _listed(self, key: str, *, section: str, names: Sequence[str]) -> Iterator[Gap]:
        if key not in names:
            yield Gap(f"{key} in {section}", missing_needs.put(section, "'[…, " + key + "]'"))

    def _labelled(self, labeller: str, *, key: str, examples: int, items: int) -> RequestPlan:
        picture = self.paper == "figsim"
        return request_plan.of(
            labeller,
            scheme=self.scheme,
            key=key,
            examples=examples,
            items=items,
            room=request_plan.room_of(picture=picture, params=self.params),
            picture=picture,
            params=self.params,
        )

    def _served(self, labeller: str, *, asked: RequestPlan) -> tuple[HardwareNeed, list[Gap], list[str]]:
        """Return what a labeller's server takes (nothing for a vendor), what is missing to ask it, and notes."""
        gaps, notes = missing_needs.served(labeller, params=self.params, settings=self.settings, today=self.today)
        described = self.params.labellers[labeller]
        need = HardwareNeed()
        if isinstance(described, RemoteLabeller) and missing_needs.own_server(described.provider, params=self.params):
            need = hardware.asked(described.model, tokens=asked.tokens, of_gb=self.of_gb)
        return need, gaps, notes

    def _prompted(self, row: PaperRow, *, spec: PromptedModel) -> RowPlan:
        memes = self.paper == "figsim"
        items = self.items("test") if memes else self.items("dev", "test")
        asked = RequestPlan()
        for task in row.tasks:
            asked += self._labelled(spec.labeller, key=task, examples=spec.examples, items=items * spec.runs)
        need, gaps, notes = self._served(spec.labeller, asked=asked)
        section = "prompted.models" if memes else "baselines.models"
        names = self.params.prompted.models if memes else self.params.baselines.models
        gaps += self._listed(row.key, section=section, names=names)
        runs = f"{section.partition('.')[0]}: {len(row.tasks)} × {items:,} items × {spec.runs} runs"
        return RowPlan(row.name, row.key, None, runs, asked, need, tuple(gaps), tuple(notes))

    def _votes(self, row: PaperRow, *, spec: VotesModel) -> RowPlan:
        items = self.params.sample[self.corpus].size
        asked = self._labelled(spec.labeller, key=row.tasks[0], examples=self.params.few_shot.examples, items=items)
        need, gaps, notes = self._served(spec.labeller, asked=asked)
        gaps += self._listed(spec.labeller, section="votes.labellers", names=self.params.votes.labellers)
        gaps += self._listed(row.key, section="baselines.models", names=self.params.baselines.models)
        runs = f"votes: {items:,} posts, train for the ensemble; baselines"
        return RowPlan(row.name, row.key, None, runs, asked, need, tuple(gaps), tuple(notes))

    def _local(self, row: PaperRow, *, spec: LocalModel) -> RowPlan:
        items = self.items("dev", "test")
        tokens = items * self.params.votes.context_tokens
        need = hardware.asked(spec.base, tokens=tokens, of_gb=self.of_gb)
        gaps = [
            *missing_needs.bases(row.key, params=self.params),
            *missing_needs.gpus(need, here=self.here),
            *self._listed(row.key, section="baselines.models", names=self.params.baselines.models),
        ]
        return RowPlan(row.name, row.key, None, f"baselines: {items:,} posts", RequestPlan(), need, tuple(gaps))

    def _trained(self, row: PaperRow, *, spec: Model) -> RowPlan:
        section = self.params.train
        bases = [base for base, _ in getattr(spec, "bases", ())]
        runs = len(row.tasks) * len(section.seeds)
        need = hardware.encoder(bases, items=self.items("train"), epochs=section.epochs, runs=runs, of_gb=self.of_gb)
        gaps = [
            *missing_needs.bases(row.key, params=self.params),
            *missing_needs.gpus(need, here=self.here),
            *self._listed(row.key, section="train.models", names=section.models),
        ]
        asked, notes = RequestPlan(), list[str]()
        if labeller := getattr(spec, "labeller", None):
            asked = request_plan.remarks(labeller, items=self.items("train", "validation", "test"), params=self.params)
            _, more, notes = self._served(labeller, asked=asked)
            gaps += more
        told = f"train: {len(row.tasks)} tasks × {len(section.seeds)} seeds"
        told += f"; rationales by {labeller}" if labeller else ""
        return RowPlan(row.name, row.key, None, told, asked, need, tuple(gaps), tuple(notes))

    def besides(self) -> Iterator[RowPlan]:
        """Yield what the paper's other tables need: tuned models and the ensemble, or moderation systems."""
        if self.paper == "cradle":
            yield self._ensemble()
            yield from self._tuned()
        for name in self.params.moderation.systems.get(self.corpus, ()):
            yield self._moderated(name)

    def _ensemble(self) -> RowPlan:
        """Return the plan of CRADLE's ensemble, which aggregates the votes of rows above and asks nothing."""
        [(key, name)] = [(k, n) for k, n, family, *_ in printed("cradle")["table_4"]["rows"] if family == "Ensemble"]
        spec = self.params.models.get(key)
        gaps = [
            *self._members(spec.ensemble if isinstance(spec, EnsembleModel) else ""),
            *self._listed(key, section="baselines.models", names=self.params.baselines.models),
        ]
        if not isinstance(spec, EnsembleModel):
            gaps.append(Gap(f"entry {key} of kind ensemble in section models", "add it to params.yaml"))
        elif not stands_for("cradle", key, base=self.params.weights(key)):
            told = f"the row's own members: entry {key} has {self.params.weights(key)}"
            gaps.append(Gap(told, "give an ensemble with a successor another entry's name"))
        weights = self.params.weights(key)
        return RowPlan(name, key, weights, "silver; baselines", missing=tuple(gaps))

    def _members(self, ensemble: str) -> Iterator[Gap]:
        """Yield what is missing to ask the members of an ensemble, whose votes it aggregates."""
        known = self.params.ensembles.get(ensemble)
        for name in known.members if known else ():
            yield from missing_needs.served(name, params=self.params, settings=self.settings, today=self.today)[0]

    def _tuned(self) -> Iterator[RowPlan]:
        section, runs = self.params.finetune, 1 + len(self.params.repeats.seeds)
        for key, subset, name, base, *_ in printed("cradle")["table_8"]["rows"]:
            spec = self.params.models.get(key)
            if not isinstance(spec, SftModel):
                gap = Gap(f"entry {key} of kind sft in section models", "add it to params.yaml")
                yield RowPlan(f"{name}, {subset}", key, None, "nothing", missing=(gap,))
                continue
            need = hardware.tuned(
                key, spec=spec, params=self.params, posts=self.items("train"), runs=runs, of_gb=self.of_gb
            )
            gaps = [
                *self._members(section.ensemble),
                *missing_needs.bases(key, params=self.params),
                *missing_needs.gpus(need, here=self.here),
                *self._listed(key, section="finetune.models", names=section.models),
                *self._listed(subset, section="finetune.subsets", names=section.subsets),
                *self._listed(base, section="baselines.models", names=self.params.baselines.models),
            ]
            told = f"finetune on {subset}, {runs} seeds; predict_finetuned"
            weights = self.params.weights(key)
            yield RowPlan(f"{name}, {subset}", key, weights, told, RequestPlan(), need, tuple(dict.fromkeys(gaps)))

    def _moderated(self, name: str) -> RowPlan:
        spec, items = self.params.moderators[name], self.params.sample[self.corpus].size
        cost = items * spec.usd_per_1000_images / 1000 if isinstance(spec, AzureModerator) else 0.0
        asked = RequestPlan(items, 0, round(cost, 2), round(cost, 2))
        model = getattr(spec, "model", None)
        gaps = missing_needs.access(
            spec.provider, params=self.params, settings=self.settings, today=self.today, serve=model or ""
        )
        told = f"moderation: {items:,} items"
        return RowPlan(f"Moderation: {name}", name, model, told, asked, HardwareNeed(), tuple(gaps))
