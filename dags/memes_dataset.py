"""
### memes_dataset

The corpus as of a commit: **dedupe** → **sample** → **split** → **score**, the stages of `dvc.yaml` as they stand
there, then **publish** commits `dvc.lock`, replayed from the run-cache. Wakes on the asset `memes`; months that
arrive while it runs are coalesced into one further run. On a laptop the same graph is `dvc repro`.
"""

from __future__ import annotations

from dvc_airflow.dags import dataset_dag

dag = dataset_dag("memes", doc=__doc__)
