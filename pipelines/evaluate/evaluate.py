"""Score every run on the test split's gold, compare models, and analyse errors.

The result is ``metrics/<corpus>/evaluate.json``, the only input of the report. It holds numbers, names of labels and
names of models, but no text and no id. Rates and figures are fractions (the paper prints them times 100); an undefined
value is ``null``. Its shape::

    {
      "scheme": "figsim", "split": "test",
      "sampling": {"resamples": int, "seed": int, "confidence": 0.95,
                   "intervals": {"figures" | "rates" | "pairs" | "calibration": str}},     # the kind of each interval
      "items": {split: int},                          # items with gold, including the prompt's examples
      "composition": {split: {category: {label: int}}},        # FigSIM T8, CRADLE T11: annotators' labels, the empty
                                                      # set as its None
      "settings": {name: [value]},                    # of the models that are fitted, each value once (FigSIM T9)
      "decoding": {model: {"kind", "examples", "runs", "labeller", "model",
                           "temperature", "top_p", "max_output_tokens", "stop"}},   # FigSIM Table 10: what may be sent
      "order": [task],                                # the scheme's
      "tasks": {task: Task},                          # every category that models predict and that has gold
      "joint": [Joint]                                # see joint_errors.py; absent if no pair is declared
    }
    Task = {
      "kind": "single" | "multi", "ordinal": bool, "labels": [label],
      "n": int,                                       # test items that are scored
      "left_out": int,                                # test items with gold that were in no run's input
      "leaks": int,                                   # of the "n" of a published split; absent without such
      "support": {label: int},
      "baselines_from": "train" | "dev" | "validation",   # the gold they use: validation's if train has none (silver)
      "baselines": {"majority": Figures, "every_label": Figures, "majority_set": Figures},   # the last two for multi
                                                      # only; "majority_set": the most frequent label set (exact match)
      "models": {model: Model},                       # a tuned model is named "<model>-<subset>"
      "best": model | null,                           # highest mean macro-F1 on test, "valid": the paper's choice
      "backtest": {month: Backtest},                  # absent without rows that learn until a month
      "pairs": [Pair]                                 # all pairs of models, in the order of their names
    }
    Model = {
      "kind": str | null,                             # of params.yaml; null: the entry no longer exists
      "source": "fitted" | "asked" | null,            # fitted on this corpus, or not; null: the row no longer exists
      "name": str, "subset": str | null,              # its entry of params.models; the subset it was fitted on
      "base": str | null,                             # its weights by name, several joined by " + " (Params.weights)
      "note": str | null,                             # what a reader must know about its kind
      "deviations": [str],                            # what its recipe computes differently from the paper's
      "untuned": model | null,                        # for a tuned model: the model that is its base (CRADLE T8)
      "runs": int, "seeds": [int],
      "outcomes": {outcome: int},                     # over all runs; only "vote" is an answer; "missing": no row
      "valid": Scores | null,                         # missing answers left out, as in the paper; null: no answers
      "all": Scores,                                  # missing answers count as wrong (an empty prediction)
      "by_seed": {str(seed): {"n_valid": int, "valid": Figures | null, "all": Figures}},
      "confusion": [[int]] | null,                    # single: rows gold, columns predicted, summed over the runs
      "errors": Errors,                               # of the answers, summed over the runs
      "dev": {"n": int, "by_seed": {the same}} | null,         # on the validation split, without the prompt's examples
      "calibration": Calibration | null,              # null: no run gives probabilities
      "floors": {label: Floor},                       # labels with a recall floor in the scheme, with their alerts
      "spent": Spent | null,                          # null: no spent.json beside its predictions
      "crises": Crises | null,                        # null: the labels are not crises with a time
      "transfer": Transfer,                           # absent without a map of another corpus's labels
      "queue": Queue,                                 # see review_queue.py; absent if none is declared
      "unflagged": {"n": int, "by_seed": {the same}}, # without the items that a review took in; absent without such
      "leak_free": {"n": int, "valid": Scores | null, "all": Scores | null}  # without leaking items
    }
    # "floors" and "pairs", which are claims of ours, leave out the leaking items; all else is on the split as published
    Scores = {"figures": {figure: Cell}, "labels": {label: {"f1": Cell, "precision": Cell, "recall": Cell}}}
    figure: macro_f1, macro_precision, macro_recall, weighted_f1, exact; for multi jaccard, micro_f1, micro_precision,
    micro_recall; for an ordinal kappa (quadratic weights), mae; if the scheme has severities severity_recall
    Figures = {"figures": {figure: float | null}, "labels": {label: {"f1", "precision", "recall": float | null}}}
    Cell = {"mean", "std", "n", "low", "high"}        # std over n runs (ddof 1; null for one); the 95 % BCa interval is
                                                      # over items, drawn by group, and over runs if there are several
    Errors = {
      "answers": int, "unanswered": int, "wrong": Rate,                   # wrong: not exactly gold's set
      "by_label": {label: {"over": Rate, "under": Rate}},                 # Figures 4 (ordinal, by true label), 7 and 8
      "by_category": {category: {label: Rate}},       # wrong, by context and modality
      "by_labels": {category: {label | "Any": {presence: {"of_wrong": Rate, "of_all": Rate}}}}
                                                      # FigSIM T12; ordinal tasks, by the scheme's errors_by. presence:
                                                      # absent, present, and identified: present, and also said by all
                                                      # runs of the best model of that category (5.3)
    }
    Rate = {"count": int, "of": int, "rate", "low", "high"}               # rate and bounds null if of is 0
    Transfer = {                                      # over all items, as "all"
      "labels": [label],                              # that the map leads to
      "macro_f1": Cell,                               # of these labels
      "here": model | null,                           # the fitted model with the best macro-F1 of these labels
      "here_macro_f1": Cell | null, "change": {"value", "low", "high"} | null          # this model's less that one's
    }
    Backtest = {
      "n": int,                                       # items of validation after the month, as asked
      "models": {model: {"runs": int, "exact": Cell, "macro_f1": Cell,      # on all of them, as "all" of Model
                         "whole": Cell | null,        # macro-F1 of the same model of all months on the same items
                         "change": {"value", "low", "high"} | null}}        # the model's less "whole"
    }
    Calibration, Floor: see reliability.py; Spent: see inputs.py; Crises: see label_errors.py
    Pair = {"a": model, "b": model,
            "macro_f1" | "weighted_f1": {"value", "low", "high"},         # a - b over all records, paired bootstrap
            "p": {"bootstrap" | "randomisation" | "mcnemar": float},
            "holm": {the same},                                           # within the task and the test
            "mcnemar": {"a_only": int, "b_only": int}}                    # items that only one of the two has right
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipelines.core import rows
from pipelines.core.config.label import RemoteLabeller
from pipelines.core.config.models import Queue
from pipelines.core.config.params import Params
from pipelines.core.errors import ConfigError
from pipelines.core.taxonomy import Scheme, load
from pipelines.core.taxonomy.guideline import offered
from pipelines.core.taxonomy.task import Task, tasks_of
from pipelines.evaluate import inputs, joint_errors, label_errors, model_scores, paired, reliability, review_queue
from pipelines.evaluate.inputs import TEST, TRAIN, EvaluationGold, Origin, runs_of
from pipelines.evaluate.label_errors import Traits
from pipelines.evaluate.model_scores import ABSTAINED, ALL, VALID, Board, Item, Json, Run, Sampling, Scored, plain
from pipelines.llm.vendor import vendor_of
from pipelines.metrics.bootstrap import CONFIDENCE, INTERVALS
from pipelines.metrics.label_sets import LabelSet
from pipelines.metrics.recall_constraints import floors_of
from pipelines.models.kind import spec
from pipelines.store.metrics_file import write_metrics
from pipelines.store.stage import SCHEME, Context, Stage

OUTPUT_TOKENS = 128  # FigSIM T10


@dataclass(frozen=True)
class TaskContext:
    """Data that the evaluation of a task uses besides the models' answers on test."""

    origins: Mapping[str, Origin] = field(default_factory=dict)
    spent: Mapping[str, Json] = field(default_factory=dict)
    dev: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)
    reviewed: frozenset[Item] = frozenset()
    queue: Queue | None = None
    reached: Mapping[str, frozenset[str]] = field(default_factory=dict)


STAGE = Stage(
    reads=("annotations", "few_shot", "gold", "predictions", "split"),
    params=(
        "evaluate",
        "train.mode",
        "rows.answers",
        "ensembles",
        "labellers",
        "models",
        "providers",
        "distributions",
        SCHEME,
    ),
    writes=(),
    revision=2,
)


def run(ctx: Context, *, sampling: Sampling | None = None) -> Json:
    """Score all models of a corpus; write ``metrics/<corpus>/evaluate.json`` (shape: module docstring) and return it.

    The predictions are those of the corpus's rows (``rows.yaml``). ``sampling`` replaces the number and the seed of the
    bootstrap resamples in ``params``.
    """
    corpus, params, root = ctx.corpus, ctx.params, ctx.root
    scheme = load(params.corpora[corpus].scheme, root=root)
    sampling = sampling or Sampling(params.evaluate.resamples, params.evaluate.seed)
    folder = root / "snapshot" / corpus
    gold = EvaluationGold.read(folder)
    tasks = {key: task for key, task in tasks_of(scheme).items() if gold.labels.get(key)}
    every = [row for row in rows.read(root).answers.values() if row.corpus == corpus]
    own, dated = [row for row in every if row.until is None], [row for row in every if row.until]
    predictions = inputs.read_predictions(folder / "predictions", answers=own, params=params)
    runs, dev = (runs_of(predictions.rows, tasks=tasks, gold=gold, split=split) for split in (TEST, gold.validation))
    traits, measured = _traits(gold, scheme=scheme, tasks=tasks), dict[str, Json]()
    # those first by whose answers the errors of others are broken down
    for key in sorted(tasks, key=lambda key: (key not in scheme.errors_by, key)):
        context = TaskContext(
            predictions.origins,
            predictions.spent,
            dev.get(key, {}),
            floors_of(tasks[key]),
            inputs.reviewed(corpus, root=root),
            params.evaluate.queues.get(corpus, {}).get(key),
            inputs.reached({row.model for row in own}, params=params),
        )
        at: dict[str, Any] = {"gold": gold, "runs": runs.get(key, {}), "sampling": sampling, "context": context}
        measured[key] = measure(tasks[key], traits=traits, **at)
        if key in scheme.errors_by and (best := measured[key]["best"]):
            traits = replace(traits, said={**traits.said, key: agreed(runs[key][best])})
    metrics: Json = {
        "scheme": scheme.name,
        "split": TEST,
        "sampling": {**vars(sampling), "confidence": CONFIDENCE, "intervals": INTERVALS},
        "items": dict(sorted(Counter(gold.split[i] for i in set().union(*gold.labels.values())).items())),
        "composition": composition(gold, scheme=scheme),
        "settings": settings(sorted({row.model for row in own if row.subset} & params.models.keys()), params=params),
        "decoding": decoding(
            sorted({row.model for row in own if row.subset is None} & params.models.keys()), params=params
        ),
        "order": list(tasks),
        "tasks": measured,
    }
    for month in sorted({str(row.until) for row in dated}):
        here = [row for row in dated if row.until == month]
        names = {row.shown: rows.shown(row.model, row.subset) for row in here}
        known = inputs.read_predictions(folder / "predictions", answers=here, params=params).rows
        for key, models in runs_of(known, tasks=tasks, gold=gold, split=gold.validation).items():
            board = _board(tasks[key], gold=gold, runs=models, split=gold.validation, sampling=sampling)
            whole = {name: dev.get(key, {}).get(other, ()) for name, other in names.items()}
            found = paired.backtest(board, runs=models, whole=whole)
            metrics["tasks"][key].setdefault("backtest", {})[month] = found
    declared = params.evaluate.joint.get(corpus, ())
    wanted = {*params.evaluate.queues.get(corpus, {}), *(key for pair in declared for key in pair)}
    if unknown := sorted(wanted - tasks.keys()):
        raise ConfigError("UnknownName", kind=f"task of {corpus} with gold", name=unknown[0], known=", ".join(tasks))
    if declared:
        boards = {
            key: _board(tasks[key], gold=gold, runs=runs.get(key, {}), split=TEST, sampling=sampling)
            for key in dict.fromkeys(key for pair in declared for key in pair)
        }
        metrics["joint"] = [
            joint_errors.joint(boards[a], boards[b], runs=(runs.get(a, {}), runs.get(b, {}))) for a, b in declared
        ]
    return write_metrics(metrics, root / "metrics" / corpus / "evaluate.json")


def agreed(runs: Sequence[Run]) -> dict[Item, LabelSet]:
    """Return the labels that all runs of a model gave, of the items that all of them answered."""
    items = set.intersection(*(set(run.answers) for run in runs))
    return {item: LabelSet.intersection(*(run.answers[item] for run in runs)) for item in items}


def measure(
    task: Task,
    *,
    gold: EvaluationGold,
    runs: Mapping[str, Sequence[Run]],
    traits: Traits,
    sampling: Sampling,
    context: TaskContext | None = None,
) -> Json:
    """Return the evaluation of all models of one task, as ``Task`` of ``evaluate.json``."""
    context = context or TaskContext()
    board = _board(task, gold=gold, runs=runs, split=TEST, sampling=sampling)
    dev = _board(task, gold=gold, runs=context.dev, split=gold.validation, sampling=sampling) if context.dev else None
    # scores are for comparison with the paper's; what is claimed from them has to hold for posts that no model has seen
    fair, fair_dev = inputs.without_items(board, items=gold.leaks), dev and inputs.without_items(dev, items=gold.leaks)
    learnt = [split for split in (TRAIN, gold.validation) if gold.seen(task, split=split)] or [TRAIN]
    result: Json = {
        "kind": task.kind,
        "ordinal": task.ordinal,
        "labels": list(task.labels),
        "n": len(board.items),
        "left_out": len(gold.seen(task, split=TEST)) - len(board.items),
        "support": board.support,
        "baselines": {},
        "baselines_from": learnt[0],
        "models": {},
        "best": None,
        "pairs": [],
    }
    if not board.items:
        return result
    if fair is not board:
        result["leaks"] = len(board.items) - len(fair.items)
    result["baselines"] = baselines(board, train=list(gold.seen(task, split=learnt[0]).values()))
    entrants, on_test = {}, {}
    for name, model_runs in sorted(runs.items()):
        origin = context.origins.get(name, Origin(None, name))
        on_dev = context.dev.get(name, ())
        scored = on_test[name] = model_scores.score(board, runs=model_runs, valid=False)
        clean: Json = {VALID: None, ALL: None}
        if fair.items:
            on_fair = scored if fair is board else model_scores.score(fair, runs=model_runs, valid=False)
            entrants[name] = paired.Entrant.of(fair, runs=model_runs, scored=on_fair)
            if fair is not board:
                clean = _model(fair, runs=model_runs, whole=model_scores.scores(on_fair, board=fair))
        result["models"][name] = {
            **vars(origin),
            "deviations": list(origin.deviations),
            **_model(board, runs=model_runs, whole=model_scores.scores(scored, board=board)),
            "errors": label_errors.analyse(board, runs=model_runs, traits=traits),
            "dev": {"n": len(dev.items), "by_seed": _by_seed(dev, runs=on_dev)} if dev and on_dev else None,
            "calibration": reliability.calibration(board, runs=model_runs),
            "floors": reliability.floors(
                fair, runs=model_runs, dev=fair_dev, dev_runs=on_dev, wanted=context.floors if fair.items else {}
            ),
            "spent": context.spent.get(name),
            "crises": label_errors.crises_of(board, runs=model_runs),
        }
        if context.queue:
            result["models"][name]["queue"] = review_queue.queue(board, runs=model_runs, wanted=context.queue)
        if (part := inputs.without_items(board, items=context.reviewed)) is not board:
            rest = _by_seed(part, runs=model_runs) if part.items else {}
            result["models"][name]["unflagged"] = {"n": len(part.items), "by_seed": rest}
        if fair is not board:
            result["models"][name]["leak_free"] = {"n": len(fair.items), VALID: clean[VALID], ALL: clean[ALL]}
    _transfers(result, scored=on_test, reached=context.reached)
    result["best"] = best_of(result["models"])
    result["pairs"] = paired.pairs(fair, entrants=entrants)
    return result


def _transfers(task: Json, *, scored: Mapping[str, Scored], reached: Mapping[str, frozenset[str]]) -> None:
    """Add ``transfer`` to models that have a map of another corpus's labels."""
    models = task["models"]
    fitted = [name for name, model in models.items() if model["source"] == inputs.FITTED]
    for name, model in models.items():
        if labels := {*task["labels"]} & reached.get(model["name"], frozenset()):
            model["transfer"] = paired.transfer(name, scored, labels=labels, fitted=fitted)


def _board(
    task: Task, *, gold: EvaluationGold, runs: Mapping[str, Sequence[Run]], split: str, sampling: Sampling
) -> Board:
    known = gold.seen(task, split=split)
    # without any run, all of gold is the test set; otherwise, items in no run's input were taken down before it ran
    every = [run.outcomes for model_runs in runs.values() for run in model_runs]
    asked = {item for outcomes in every for item, outcome in outcomes.items() if outcome != ABSTAINED}
    items = tuple(item for item in known if item in asked or not every)
    return Board(task, items, tuple(known[i] for i in items), tuple(gold.group[i] for i in items), sampling)


def _by_seed(board: Board, *, runs: Sequence[Run]) -> Json:
    scores = {}
    for run in runs:
        predicted = board.predicted(run)
        n = sum(answer is not None for answer in predicted)
        scores[str(run.seed)] = {
            "n_valid": n,
            VALID: model_scores.plain(board, predicted=predicted, valid=True) if n else None,
            ALL: model_scores.plain(board, predicted=predicted, valid=False),
        }
    return scores


def _model(board: Board, *, runs: Sequence[Run], whole: Json) -> Json:
    by_seed = _by_seed(board, runs=runs)
    answered = [scores["n_valid"] for scores in by_seed.values()]
    valid = None
    if all(n == len(board.items) for n in answered):
        valid = whole
    elif any(answered):
        valid = model_scores.scores(model_scores.score(board, runs=runs, valid=True), board=board)
    return {
        "runs": len(runs),
        "seeds": [run.seed for run in runs],
        "outcomes": dict(sorted(sum((board.outcomes(run) for run in runs), Counter[str]()).items())),
        VALID: valid,
        ALL: whole,
        "by_seed": by_seed,
        "confusion": model_scores.confusion(board, runs=runs) if board.task.kind == "single" else None,
    }


def best_of(models: Mapping[str, Json]) -> str | None:
    """Return the name of the model with the highest mean macro-F1 on its valid answers; the first name wins a tie."""
    means = {name: model[VALID]["figures"]["macro_f1"]["mean"] for name, model in models.items() if model[VALID]}
    return min(means, key=lambda name: (-means[name], name)) if means else None


def composition(gold: EvaluationGold, *, scheme: Scheme) -> Json:
    """Count the annotators' gold labels by split and category (FigSIM Table 8); an empty set counts as ``None``."""
    table: Json = {}
    for split in sorted(set(gold.split.values())):
        table[split] = {}
        for key, category in scheme.categories.items():
            empty = [] if category.none is None else [category.none]
            counts = Counter(label for labels in gold.of(key, split=split).values() for label in labels or empty)
            table[split][key] = {label.name: counts[label.name] for label in offered(category)}
    return table


def _traits(gold: EvaluationGold, *, scheme: Scheme, tasks: Mapping[str, Task]) -> Traits:
    """Return what errors are broken down by: categories that the scheme names, and single ones that none predicts."""
    named = {key: tasks[key] for key in scheme.errors_by if key in tasks}
    others = [c for c in scheme.categories.values() if not c.predicted and c.kind == "single"]
    return Traits(
        sets={key: gold.seen(task, split=TEST) for key, task in named.items()},
        kinds={c.key: {i: min(s) for i, s in gold.of(c.key, split=TEST).items() if s} for c in others},
        values={key: task.labels for key, task in named.items()}
        | {c.key: [label.name for label in offered(c)] for c in others},
    )


def settings(models: Sequence[str], *, params: Params) -> Json:
    """Return the parameters of fitted models that are no names, with the values that they have."""
    values: dict[str, dict[str, Any]] = {"mode": {params.train.mode: params.train.mode}}
    for name in models:
        for key, value in spec(params, name).model_dump(mode="json").items():
            if not isinstance(value, str | None):
                values.setdefault(key, {})[str(value)] = value
    return {key: [*each.values()] for key, each in sorted(values.items())}


def decoding(models: Sequence[str], *, params: Params) -> Json:
    """Return the decoding settings (FigSIM Table 10) of those models that are prompted, as far as APIs accept them."""
    settings: Json = {}
    for name in models:
        entry = spec(params, name)
        labeller = params.labellers.get(str(getattr(entry, "labeller", None)))
        if not isinstance(labeller, RemoteLabeller):
            continue
        takes = vendor_of(labeller.provider, params=params).capabilities(labeller.model)
        settings[name] = {
            **entry.model_dump(include={"kind", "examples", "runs", "labeller"}),
            "model": labeller.model,
            "temperature": takes.temperature,
            "top_p": takes.top_p,
            "max_output_tokens": OUTPUT_TOKENS * takes.max_tokens_factor,
            "stop": takes.stop,
        }
    return settings


def baselines(board: Board, *, train: Sequence[LabelSet]) -> Json:
    """Return the scores of constant answers to the test set by name, as ``baselines`` of ``evaluate.json``.

    ``majority`` answers train's most frequent class (single-label task), or all labels that over half of train's items
    have. For multi-label tasks, ``every_label`` predicts all labels, which macro-F1 rewards more, and ``majority_set``
    the most frequent set, which exact match rewards more (both ours). On a tie between classes or sets, the first in
    the scheme's order is taken.
    """
    labels = board.task.labels
    counts = {label: sum(label in values for values in train) for label in labels}
    if board.task.kind == "single":
        most = frozenset({max(labels, key=lambda label: (counts[label], -labels.index(label)))})
    else:
        most = frozenset(label for label in labels if 2 * counts[label] > len(train))
    constant = {"majority": most}
    if board.task.kind == "multi":
        sets = Counter(train)
        often = min(sets, key=lambda s: (-sets[s], sorted(map(labels.index, s))), default=frozenset())
        constant |= {"every_label": frozenset(labels), "majority_set": often}
    return {name: plain(board, predicted=[answer] * len(board.items), valid=False) for name, answer in constant.items()}
