"""``Scheduler`` and what goes with it: the functions that a controller gives to one, and the errors
of ``schedule``.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from extender.model.counted import counted_are
from extender.model.errors import VReplicaError
from extender.model.placements import Placement
from extender.scheduling_api.vpods import AnyVPod


class Scheduler(Protocol):
    """Places vpods for one controller. Calls for different vpods may overlap, calls for the same
    vpod must not.
    """

    async def schedule(self, vpod: Any) -> list[Placement]:
        """Place all vreplicas of ``vpod`` (``AnyVPod``); return the placements by ordinal. Raises
        SchedulingError.
        """
        ...


class SchedulerFunc:
    """A function as a ``Scheduler``."""

    def __init__(self, function: Callable[[Any], Awaitable[list[Placement]]]) -> None:
        self._function = function

    async def schedule(self, vpod: AnyVPod) -> list[Placement]:
        """Call the function."""
        return await self._function(vpod)

    Schedule = schedule


class VPodLister(Protocol):
    """Lists all vpods of the caller's kind that use the pool. It reads a cache, so it does not
    wait. It raises if the cache is not filled yet: a vpod that is not listed counts as gone.
    """

    def __call__(self) -> Sequence[AnyVPod]:
        """List the vpods."""
        ...


class Evictor(Protocol):
    """Removes a placement from a vpod's status. The next ``schedule`` places it elsewhere."""

    async def __call__(self, pod: Any, vpod: Any, from_: Placement) -> None:
        """Remove ``from_`` from the vpod's status.

        ``pod``: the pod of ``from_`` as the caller's pod lister has it; None if it is gone, or
        without a pod lister. ``vpod``: the object that the ``VPodLister`` returned.
        """
        ...


class SchedulingError(VReplicaError):
    """Base class of the errors of ``schedule``. ``retry_after_s`` says when to call again; with
    None, calling again with the same vpod does not help.
    """

    def __init__(self, message: str, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class InsufficientSlots(SchedulingError):
    """Some vreplicas have no place. ``placements`` are committed: publish them. ``left`` vreplicas
    wait for pods.

    Knative returns the placements together with an error that says when to requeue. In Python, the
    exception carries both.
    """

    def __init__(
        self, placements: list[Placement], left: int, reason: str, retry_after_s: float
    ) -> None:
        super().__init__(
            f"{counted_are(left, 'vreplica')} not placed ({reason or 'on their way'})",
            retry_after_s,
        )
        self.placements = placements
        self.left = left
        self.reason = reason


class NotScheduled(SchedulingError):
    """No decision is possible at this moment: no leader was reached, or not everything could be
    written. Calling again is safe.
    """


class StaleVPod(NotScheduled):
    """The object is older than one that is known already: its status may publish less than the
    object does by now. Read it again before the next call.
    """


class RequestRefused(SchedulingError):
    """The service refuses this vpod or pool, and a repeated call would be refused too. ``status``
    is the HTTP status; the message says why.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, None)
        self.status = status
