"""
### posts_finetune

Crisis models trained on the present silver labels, as in CRADLE Bench: **finetune** fine-tunes every model of
`finetune.models` on every subset (pool `gpu`), **predict_finetuned** predicts dev and test with the fine-tuned models,
**repeats** does both with further seeds (`repeats.seeds`) and keeps the predictions only,
**baselines** collects predictions of untuned baselines, **moderation** asks the systems in `moderation.systems` (both
after **estimate**, if any model or system is asked), **evaluate** compares all predictions on test, **analysis**
describes the posts with gold and tests their features by label (`agreement` measures that of the raters), **report**
writes the report, **publish** commits all of it, **track** logs numbers and report to MLflow and returns the report's
URL, **register** registers the models in section `registry` as versions.

Runs on `silver/posts`. A killed task resumes from its checkpoint. To add a model, add an entry to `models` in
`catalogue.yaml` and its name to `finetune.models` or `baselines.models`; for your own labels see `docs/models.md`.
"""

from __future__ import annotations

from dvc_airflow.dags import finetune_dag

dag = finetune_dag("posts", doc=__doc__)
