"""``ForeignStatus``: the status of an object of a foreign kind. It gets its placements, in the
kind's own shape, and the conditions of a VPod if the kind's declaration says where.

The rest of the status belongs to the kind's controller, including all other conditions
(``PlacementTranslator``). If the API server refuses an object's status as invalid several times in
a row, the kind's schema may not allow our conditions. Then the placements are written without them:
nobody may go without a place because of a wrong ``paths.conditions``.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from extender.engine.placing.plan import Decision
from extender.engine.state.availability import Availability
from extender.kube.api import Invalid, Obj
from extender.model.bounded import put_bounded
from extender.model.objects import VPod
from extender.model.translate import PlacementTranslator
from extender.service.placing.vpod_status import (
    SCHEDULED,
    conditions_of,
    have_conditions,
    scheduled_condition,
)
from extender.service.watching.sources import StatusPlace, StatusWrite

log: Final = logging.getLogger(__name__)

REFUSALS_MAX: Final = 3
"""After so many refused writes in a row, an object gets no conditions. A single one may have
another cause.
"""
TRY_AGAIN_S: Final = 60.0
"""After this time, the next decision for it tries again."""
OBJECTS_MAX: Final = 10_000
"""Objects with refused writes that are remembered."""


class ForeignStatus:
    """The ``StatusWriter`` of foreign kinds. ``place_of``: where an object's status is written;
    None if not by this service.
    """

    def __init__(self, place_of: Callable[[VPod], StatusPlace | None]) -> None:
        self._place_of = place_of
        self._refused: OrderedDict[str, _Refused] = OrderedDict()
        """vpod key -> its last writes with conditions."""

    def __call__(
        self,
        vpod: VPod,
        decision: Decision,
        placements: Mapping[str, int],
        availability: Availability,
        now: float,
    ) -> StatusWrite | None:
        """The write of ``placements``; None if there is nothing to write."""
        place = self._place_of(vpod)
        if place is None:
            return None
        conditions = (
            conditions_of(vpod, decision, placements, availability, now)
            if vpod.conditions_json is not None
            and not self._gives_up(vpod, now)
            and _differs(vpod, decision, placements, availability)
            else ()
        )
        patch = PlacementTranslator(place.source).status_of(vpod, placements, conditions)
        if patch is None:
            return None
        if not conditions:
            return StatusWrite(place.resource, patch, place.decode)

        def accepted(reply: Obj) -> VPod:
            self._refused.pop(vpod.key, None)
            return place.decode(reply)

        def refused(error: Invalid) -> None:
            self._note_refused(vpod, error, now)

        return StatusWrite(place.resource, patch, accepted, refused)

    def _gives_up(self, vpod: VPod, now: float) -> bool:
        known = self._refused.get(vpod.key)
        return (
            known is not None and known.times >= REFUSALS_MAX and abs(now - known.at) < TRY_AGAIN_S
        )

    def _note_refused(self, vpod: VPod, error: Invalid, now: float) -> None:
        known = self._refused.get(vpod.key)
        times = known.times + 1 if known is not None else 1
        put_bounded(self._refused, vpod.key, _Refused(times, now), OBJECTS_MAX)
        if times == REFUSALS_MAX:
            log.warning(
                "%s gets no conditions, because its status with them is refused: %s; if its kind "
                "has no such conditions, leave paths.conditions out of AdapterPool %s",
                vpod.key,
                error,
                vpod.pool,
                extra={"vpod": vpod.key, "pool": vpod.pool},
            )


class _Refused(NamedTuple):
    times: int
    """In a row."""
    at: float
    """Epoch seconds of the last time."""


def _differs(
    vpod: VPod, decision: Decision, placements: Mapping[str, int], availability: Availability
) -> bool:
    """Whether the object has other placements, or conditions that say something else. No
    observedGeneration tells that it wants another number now, so the number in the message does.
    """
    if dict(vpod.placements) != dict(placements) or not have_conditions(
        vpod, decision, placements, availability
    ):
        return True
    now = scheduled_condition(decision, placements)
    return now.status == "False" and not any(
        _numbers_of(known.message) == _numbers_of(now.message)
        for known in vpod.conditions
        if known.type == SCHEDULED
    )


def _numbers_of(message: str) -> str:
    """``5 of 25 vreplicas are not placed``: a message without the reason and other pods."""
    return message.partition(" (")[0].partition(":")[0]
