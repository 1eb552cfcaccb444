"""``StatusWrite``: what is to be written of one vpod's status, whatever its kind; and what a pool
is told of its kinds.
"""

from collections.abc import Callable
from dataclasses import dataclass

from extender.kube.api import Obj, Resource
from extender.model.objects import VPod

PoolCondition = tuple[str, bool, str, str]
"""(type, whether it holds, reason, message) of an AdapterPool's condition."""


@dataclass(frozen=True, slots=True)
class StatusWrite:
    """One write of a status: a merge patch of ``resource``'s status, and how its reply reads."""

    resource: Resource
    patch: Obj
    decode: Callable[[Obj], VPod]
