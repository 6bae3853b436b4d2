"""
### Dags of the corpora

Every corpus of `params.yaml` has the Dags `<corpus>_collect`, `<corpus>_refresh` and `<corpus>_dataset`, by its content
`<corpus>_label` and `<corpus>_finetune` (texts) or `<corpus>_benchmark` (images), and `<corpus>_scoring` if
`batch_predict` names models for it.
"""

from __future__ import annotations

from dvc_airflow.dags import dags_of
from dvc_airflow.graph import listed

for corpus in listed("corpora"):
    globals().update(dags_of(corpus))
