"""Ask a person for approval with a reason, and record both; no answer means rejection."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import HITLBranchOperator
from airflow.sdk import Param

# Without an answer within this time, the request is rejected.
PATIENCE = timedelta(days=14)
# Airflow 3.3 fails a task that is answered within about a second of asking; a retry asks again.
RETRIES = 5
REJECT = "Reject"
UNKNOWN = "unknown"


class Approve(HITLBranchOperator):
    """A branch operator that also pushes to XCom who answered, and why."""

    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        """Push the person and the reason to XCom, then branch; branching may end the task by an exception."""
        if chosen := event.get("chosen_options"):
            user = event.get("responded_by_user") or {}
            why = (event.get("params_input") or {}).get("why") or context["params"].get("reason")
            context["ti"].xcom_push(key="who", value=user.get("name") or user.get("id") or UNKNOWN)
            context["ti"].xcom_push(key="why", value=why or f"answered: {chosen[0]}")
        return super().execute_complete(context, event)


def approve(*, subject: str, body: str, yes: str, then: str, otherwise: str) -> Any:
    """Return the task ``approve``, which shows ``body`` and branches to ``then`` or, if not approved, ``otherwise``."""
    return Approve(
        task_id="approve",
        subject=subject,
        body=body,
        options=[yes, REJECT],
        defaults=[REJECT],
        options_mapping={yes: then, REJECT: otherwise},
        params={"why": Param("", type="string", maxLength=500, title="Why", description="recorded")},
        doc_md="a person decides based on the figures; without an answer nothing changes",
        response_timeout=PATIENCE,
        execution_timeout=None,
        retries=RETRIES,
    )


def decision(ti: Any) -> tuple[str, ...]:
    """Return the person and the reason as options of a `corpus` command."""
    who, why = (ti.xcom_pull(task_ids="approve", key=key) for key in ("who", "why"))
    return ("--who", who, "--why", why)
