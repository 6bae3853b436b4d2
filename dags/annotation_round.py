"""
### annotation_round

One round of annotation, from the drawn items to gold: **open** draws them and fills a queue for each annotator, who
sees nobody else's answers; **annotators** waits for people; **pull** brings their answers in and says by pseudonym what
is missing; **agreement** works out how far they agree; **decide** asks a person whether that is enough; **adjudicate**
puts the disagreements, without names, before a third; **adjudicator** waits for them (a round that reviews gold begins
here, as **review**); **close** leaves nothing in the annotation server; **gold** and **publish** commit what is settled
and emit `gold/<corpus>`.

By hand, with a corpus and a round of its protocol: `airflow dags trigger annotation_round --conf
'{"corpus": "memes", "round": "calibration"}'`. Waiting holds no worker and survives any restart. If people turn out not
to be done after `pull`, clear `annotators` and what is below it; where `close` says that items wait for the
adjudicator, clear `adjudicator` or `review`, or close the round by hand with `--abandon` and clear `close`. The same by
hand: `corpus round --help`.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from dvc_airflow import annotation
from dvc_airflow.graph import protocols
from dvc_airflow.tasks import DEFAULT_ARGS, pin

with DAG(
    dag_id="annotation_round",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=2,
    default_args=DEFAULT_ARGS,
    params={
        "corpus": Param("memes", type="string", enum=protocols(), description="whose items"),
        "round": Param(
            "calibration", type="string", pattern="^[a-z][a-z0-9-]*$", description="a round of its protocol"
        ),
    },
    tags=["annotation"],
) as dag:
    opened = annotation.open_round()
    annotators = annotation.wait(
        "annotators", option=annotation.READY, subject="Round {{ params.round }} of {{ params.corpus }} is open"
    )
    adjudicator, review = (
        annotation.wait(
            task_id,
            option=annotation.DECIDED,
            subject="Round {{ params.round }} of {{ params.corpus }} is with the adjudicator",
        )
        for task_id in ("adjudicator", "review")
    )
    decided = annotation.decide(adjudicate="adjudicate", close="close")
    adjudicated = annotation.adjudicate()
    closed = annotation.close()

    opened >> [annotators, review]
    annotators >> annotation.pull() >> annotation.agreement() >> decided >> [adjudicated, closed]
    adjudicated >> [adjudicator, closed]
    [adjudicator, review] >> closed
    base = pin()
    made = annotation.gold(base)
    closed >> base
    annotation.publish(base, made)
