"""
### annotation_round

One annotation round, from sampling items to gold: **open** draws the items and fills a queue for each annotator, who
does not see the others' answers; **annotators** waits for people; **pull** imports their answers and lists missing ones
by pseudonym; **agreement** measures inter-annotator agreement; **decide** asks a person whether it suffices;
**adjudicate** queues the disagreements, without names, for a third person; **adjudicator** waits for that person (a
round that reviews gold starts with **review** instead); **close** removes the round from the annotation server;
**gold** and **publish** commit the settled items, with the split of new items, and emit `gold/<corpus>`.

Triggered manually, with a corpus and a round of its protocol: `airflow dags trigger annotation_round --conf
'{"corpus": "memes", "round": "calibration"}'`. Waiting holds no worker and survives restarts. If annotation is not
complete after `pull`, clear `annotators` and its downstream tasks. If `close` reports items that wait for the
adjudicator, clear `adjudicator` (in a review: `review`) and its downstream tasks; or run `corpus round close CORPUS
ROUND --gold --reason CODE --abandon` and clear `close`. The same steps without Airflow: `corpus round --help`.
"""

from __future__ import annotations

from airflow.sdk import Param

from dvc_airflow import annotation
from dvc_airflow.dags import corpus_dag, one_of
from dvc_airflow.graph import group, listed
from dvc_airflow.tasks import pin

ROUND = "Round {{ params.round }} of {{ params.corpus }}"

with corpus_dag(
    "annotation_round",
    doc=__doc__,
    tags=["annotation"],
    schedule=None,
    max_active_runs=2,
    params={
        "corpus": one_of(listed("protocols"), description="the corpus of the items"),
        "round": Param(
            "calibration", type="string", pattern="^[a-z][a-z0-9-]*$", description="a round of its protocol"
        ),
    },
) as dag:
    with group("annotation", tooltip="draw the items; two people label each; measure their agreement; decide"):
        opened, pulled, agreement = annotation.open_round(), annotation.pull(), annotation.agreement()
        annotators = annotation.wait("annotators", option=annotation.READY, subject=f"{ROUND} is open")
        decided = annotation.decide(adjudicate="adjudicate", close="close")
        opened >> annotators >> pulled >> agreement >> decided
    with group("adjudication", tooltip="a third person settles disagreements; then the round is closed"):
        adjudicated, closed = annotation.adjudicate(), annotation.close()
        adjudicator, review = (
            annotation.wait(task_id, option=annotation.DECIDED, subject=f"{ROUND} is with the adjudicator")
            for task_id in ("adjudicator", "review")
        )
        adjudicated >> [adjudicator, closed]
        [adjudicator, review] >> closed
    opened >> review
    decided >> [adjudicated, closed]
    with group("publication", tooltip="run the stages that read gold again, and commit their results"):
        base = pin()
        made = annotation.gold(base)
        annotation.publish(base, made)
    closed >> base
