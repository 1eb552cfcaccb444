"""``ForeignStatus``: the status of an object of a foreign kind. It gets its placements, in the
kind's own shape, and the conditions of a VPod if the kind's declaration says where.

The rest of the status belongs to the kind's controller, including all other conditions
(``PlacementTranslator``). If the API server refuses a write with conditions as invalid, the kind's
schema may not allow them. Then the placements are written without them: nobody may go without a
place because of a wrong ``paths.conditions``.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from extender.engine.placing.plan import Decision
from extender.engine.state.availability import Availability
from extender.kube.api import Invalid
from extender.model.bounded import put_bounded
from extender.model.objects import Path, Source, VPod
from extender.model.translate import PlacementTranslator
from extender.service.placing.vpod_status import conditions_of, have_conditions
from extender.service.watching.sources import KINDS_MAX, StatusPlace, StatusWrite

log: Final = logging.getLogger(__name__)

TRY_AGAIN_S: Final = 600.0
"""How long a kind gets no conditions after a refused write. Its schema may be corrected."""


class ForeignStatus:
    """The ``StatusWriter`` of foreign kinds. ``place_of``: where an object's status is written;
    None if not by this service.
    """

    def __init__(self, place_of: Callable[[VPod], StatusPlace | None]) -> None:
        self._place_of = place_of
        self._refused_at: OrderedDict[tuple[str, Path], float] = OrderedDict()
        """(source, path of its conditions) -> epoch seconds."""

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
            if self._takes_conditions(place.source, vpod, now)
            and _differs(vpod, decision, placements, availability)
            else ()
        )
        patch = PlacementTranslator(place.source).status_of(vpod, placements, conditions)
        if patch is None:
            return None
        if not conditions:
            return StatusWrite(place.resource, patch, place.decode)

        def refused(error: Invalid) -> None:
            self._note_refused(place.source, vpod, error, now)

        return StatusWrite(place.resource, patch, place.decode, refused)

    def _takes_conditions(self, source: Source, vpod: VPod, now: float) -> bool:
        refused_at = self._refused_at.get(_key(source))
        return vpod.conditions_json is not None and (
            refused_at is None or abs(now - refused_at) >= TRY_AGAIN_S
        )

    def _note_refused(self, source: Source, vpod: VPod, error: Invalid, now: float) -> None:
        put_bounded(self._refused_at, _key(source), now, KINDS_MAX)
        log.warning(
            "%s %s: its status with conditions is refused, so objects of its kind get none for "
            "%d s: %s; if the kind has no such conditions, leave paths.conditions out of "
            "AdapterPool %s",
            source.key,
            vpod.key,
            TRY_AGAIN_S,
            error,
            vpod.pool,
            extra={"vpod": vpod.key, "pool": vpod.pool},
        )


def _key(source: Source) -> tuple[str, Path]:
    return source.key, source.paths.conditions


def _differs(
    vpod: VPod, decision: Decision, placements: Mapping[str, int], availability: Availability
) -> bool:
    """Whether the object has other placements, or conditions that say something else."""
    return dict(vpod.placements) != dict(placements) or not have_conditions(
        vpod, decision, placements, availability
    )
