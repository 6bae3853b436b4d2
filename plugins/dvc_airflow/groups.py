"""Group the tasks of a Dag by what is known of their stages: package, step, and the first value of a large matrix.

Group ids are no part of task ids, so that these stay the names of the stages.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from airflow.sdk import TaskGroup

from dvc_airflow.graph import Stage, packages


@dataclass(frozen=True)
class ShownGroup:
    """A group of tasks as the graph shows it: its id, and the text that appears when the pointer is on it."""

    name: str
    tooltip: str = ""


def plan(
    stages: Sequence[Stage], *, waiting: Collection[str] = (), docs: Mapping[str, str] | None = None
) -> dict[str, tuple[ShownGroup, ...]]:
    """Return the groups of each stage's task, outermost first.

    Stages of one package are a group unless groups would then depend on each other in a circle, as `split`, which
    reads `gold`, and `sample`, which `gold` reads, would; tasks of one step are a group; those of a step with a matrix
    of two or more values are a group for each first value, such as `train__severity`.

    Args:
        waiting: the steps whose tasks wait for further tasks, which may depend on all stages before.
    """
    counts, steps = Counter(stage.step for stage in stages), {stage.step for stage in stages}
    chosen: set[str] = set()
    for package in dict.fromkeys(stage.package for stage in stages):
        several = len({stage.step for stage in stages if stage.package == package}) > 1
        # a group and a task may not have the same id
        if package and several and package not in steps and _acyclic(stages, chosen | {package}, waiting=waiting):
            chosen.add(package)
    firsts: dict[str, Counter[str]] = defaultdict(Counter)
    for stage in stages:
        firsts[stage.step][stage.first] += 1
    found = {}
    for stage in stages:
        path = [ShownGroup(stage.package, (docs or {}).get(stage.package, ""))] if stage.package in chosen else []
        if counts[stage.step] > 1:
            path.append(ShownGroup(stage.step, stage.desc))
            if stage.first and len(firsts[stage.step]) > 1 and firsts[stage.step][stage.first] > 1:
                path.append(ShownGroup(f"{stage.step}__{stage.first}"))
        found[stage.name] = tuple(path)
    return found


def group(name: str, *, tooltip: str) -> Any:
    """Return a task group whose name is no part of the ids of its tasks."""
    return TaskGroup(name, prefix_group_id=False, tooltip=tooltip)


class Groups:
    """The task groups of a Dag under construction; each is made when its first task is."""

    def __init__(self, stages: Sequence[Stage], *, waiting: Collection[str] = ()) -> None:
        self._plan = plan(stages, waiting=waiting, docs=packages())
        self._made: dict[str, Any] = {}

    @contextmanager
    def of(self, stage: Stage) -> Iterator[None]:
        """Open the groups of a stage's task."""
        with ExitStack() as opened:
            for one in self._plan[stage.name]:
                if one.name not in self._made:
                    self._made[one.name] = group(one.name, tooltip=one.tooltip)
                opened.enter_context(self._made[one.name])
            yield


def _acyclic(stages: Sequence[Stage], chosen: Collection[str], *, waiting: Collection[str]) -> bool:
    """Return whether these packages as groups do not depend on each other in a circle, waiting tasks included."""
    of = {stage.name: f"package {stage.package}" if stage.package in chosen else stage.name for stage in stages}
    edges: dict[str, set[str]] = defaultdict(set)
    before: list[str] = []
    for stage in stages:
        node = of[stage.name]
        edges[node] |= {of[name] for name in stage.upstream if name in of} - {node}
        if stage.step in waiting:
            edges[f"wait {stage.step}"] |= set(before)
            edges[node].add(f"wait {stage.step}")
        else:
            before.append(node)
    try:
        TopologicalSorter(edges).prepare()
    except CycleError:
        return False
    return True
