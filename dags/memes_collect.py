"""
### memes_collect

One month of r/SuicideMeme and its like: **collect** scans the source once and seals what it keeps, **images** (mapped
over shards) fetches, decodes and reads the pictures, **partition** joins the shards, **publish** commits the month and
wakes `memes_dataset`. Tasks hand over pointers, counts and digests, never content.

Years of it: `airflow backfill create --dag-id memes_collect --from-date 2018-04-01 --to-date 2022-12-01`;
again for months that exist: add `--reprocess-behavior completed`. One month by hand:
`airflow dags trigger memes_collect --partition-key 2022-12`.
"""

from __future__ import annotations

from dvc_airflow.dags import collect_dag

dag = collect_dag("memes", items="images", pool="images", doc=__doc__)
