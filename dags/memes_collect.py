"""
### memes_collect

One month of r/SuicideMeme and similar subreddits: **collect** scans the source once and seals the kept posts,
**images** (mapped over shards) fetches, decodes and OCRs the images, **partition** joins the shards, **publish**
commits the month and triggers `memes_dataset`. Tasks exchange pointers, counts and digests, never content.

Several years: `airflow backfill create --dag-id memes_collect --from-date 2018-04-01 --to-date 2022-12-01`; to collect
existing months again, add `--reprocess-behavior completed`. One month manually:
`corpus airflow trigger memes_collect --partition-key 2022-12`.
"""

from __future__ import annotations

from dvc_airflow.dags import collect_dag

dag = collect_dag("memes", doc=__doc__)
