"""Makes a failing case small: objects go, then parts of what is left, as long as it still fails.
Bounded by tries.
"""

import copy
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from extender.kube.api import Obj
from tests.differential.scheduler_cases import SchedulerCase
from tests.differential.scheduler_real import RefusedObject

TRIES_MAX: Final = 250
_PARTS: Final = ("running", "pending", "lookups", "nodes")
_KEPT: Final = frozenset(
    {
        "name",
        "namespace",
        "apiVersion",
        "kind",
        "nodeName",
        "containers",
        "terminationGracePeriodSeconds",
    }
)

Fails = Callable[[SchedulerCase], Awaitable[bool]]


async def shrunk(case: SchedulerCase, fails: Fails, *, tries_max: int = TRIES_MAX) -> SchedulerCase:
    """The smallest case that was found to fail; ``fails(case)`` is taken for granted."""
    tries = 0
    progress = True
    while progress:
        progress = False
        for candidate in _smaller(case):
            if tries == tries_max:
                return case
            tries += 1
            try:
                failed = await fails(candidate)
            except RefusedObject:
                continue
            if failed:
                case, progress = candidate, True
                break
    return case


def _smaller(case: SchedulerCase) -> Iterator[SchedulerCase]:
    for part in _PARTS:
        objects = getattr(case, part)
        for size in (len(objects) // 2, 1):
            for start in range(0, len(objects), size) if size else ():
                left = (*objects[:start], *objects[start + size :])
                if left or part in {"running", "lookups"}:
                    yield case.with_part(part, left)
    if case.terminating:
        yield replace(case, terminating=frozenset())
    for part in _PARTS:
        objects = getattr(case, part)
        for index, obj in enumerate(objects):
            for smaller in _without_a_field(obj):
                yield case.with_part(part, (*objects[:index], smaller, *objects[index + 1 :]))


def _without_a_field(obj: Obj) -> Iterator[Obj]:
    for path in _paths(obj):
        smaller = copy.deepcopy(obj)
        holder: Any = smaller
        for step in path[:-1]:
            holder = holder[step]
        del holder[path[-1]]
        yield smaller


def _paths(value: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field and list item, outer ones first, less what an object cannot be without."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    steps = [step for step, _ in items if step not in _KEPT]
    for step in steps:
        if len(prefix) or step not in {"metadata", "spec", "status"}:
            yield (*prefix, step)
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for step in keys:
        yield from _paths(value[step], (*prefix, step))
