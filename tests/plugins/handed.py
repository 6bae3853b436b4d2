"""What tasks of a run hand over, without Airflow's database."""

from __future__ import annotations

from typing import Any


class Handed(dict[str, Any]):
    """A task instance: what it pushed, by key."""

    map_index = -1
    task: Any = None

    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = value

    def xcom_pull(self, *, task_ids: str, key: str = "return_value") -> Any:
        return self.get(key)
