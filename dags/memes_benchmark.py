"""
### memes_benchmark

FigSIM's benchmark on the present gold, which **gold** collects and **split** and **few_shot** use: **rationales**
generates the rationales that models of kinds m3h and infused read (none, without such a model), **train** trains every
model of `train.models` for every task and seed (pool `gpu`), **prompted** predicts with each of `prompted.models`,
**moderation** asks the moderation systems in `moderation.systems` (before these three **estimate** fails if they would
exceed the budget), **evaluate** scores the predictions on test, compares all pairs and analyses errors, **analysis**
describes the memes with gold and tests their features by label (`agreement` measures that of the raters), **report**
writes the report, **publish**
commits all of it, **track** logs numbers and report to MLflow and returns the report's URL, **register** registers the
models in section `registry` as versions.

Runs on `gold/memes`, at the end of an annotation round, or when triggered manually. A month that is committed meanwhile
does not trigger this Dag: `publish` then fails and names the tasks to clear. A killed task resumes from its checkpoint.
To add a model, add an entry to `models` in `catalogue.yaml` and its name to `train.models`.
"""

from __future__ import annotations

from dvc_airflow.dags import benchmark_dag

dag = benchmark_dag("memes", doc=__doc__)
