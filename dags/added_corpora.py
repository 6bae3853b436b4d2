"""
### Dags of added corpora

A corpus that a profile adds has the Dags of `memes` or of `posts`, depending on its content: `<corpus>_collect`,
`<corpus>_dataset`, `<corpus>_label` and `<corpus>_finetune` (texts) or `<corpus>_benchmark` (images), and
`<corpus>_scoring` if `batch_predict` names models for it.
"""

from __future__ import annotations

from dvc_airflow.dags import added, dags_of

for corpus in added():
    globals().update(dags_of(corpus))
