"""
### posts_collect

One month of crisis posts from the paper's eight subreddits (or any list in `params.yaml`): **collect** scans the
source once, scrubs and seals the text submissions, **texts** (mapped over shards) checks length and language and
computes a signature of each text for the near-duplicate search, **partition** joins the shards, **publish** commits the
month and triggers `posts_dataset`. Tasks exchange pointers, counts and digests, never content.

Several years: `airflow backfill create --dag-id posts_collect --from-date 2018-01-01 --to-date 2022-12-01`; to collect
existing months again, add `--reprocess-behavior completed`. One month manually:
`corpus airflow trigger posts_collect --partition-key 2022-12`.
"""

from __future__ import annotations

from dvc_airflow.dags import collect_dag

dag = collect_dag("posts", doc=__doc__)
