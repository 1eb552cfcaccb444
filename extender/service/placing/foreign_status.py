"""``ForeignStatus``: the status of an object of a foreign kind. It gets its placements, in the
kind's own shape, and the conditions of a VPod if the kind's declaration says where.

The rest of the status belongs to the kind's controller, including all other conditions
(``PlacementTranslator``).
"""

from collections.abc import Callable, Mapping

from extender.engine.placing.plan import Decision
from extender.engine.state.availability import Availability
from extender.model.objects import VPod
from extender.model.translate import PlacementTranslator
from extender.service.placing.vpod_status import conditions_of, have_conditions
from extender.service.watching.sources import StatusPlace, StatusWrite


class ForeignStatus:
    """The ``StatusWriter`` of foreign kinds. ``place_of``: where an object's status is written;
    None if not by this service.
    """

    def __init__(self, place_of: Callable[[VPod], StatusPlace | None]) -> None:
        self._place_of = place_of

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
            and _differs(vpod, decision, placements, availability)
            else ()
        )
        patch = PlacementTranslator(place.source).status_of(vpod, placements, conditions)
        return None if patch is None else StatusWrite(place.resource, patch, place.decode)


def _differs(
    vpod: VPod, decision: Decision, placements: Mapping[str, int], availability: Availability
) -> bool:
    """Whether the object has other placements, or conditions that say something else."""
    return dict(vpod.placements) != dict(placements) or not have_conditions(
        vpod, decision, placements, availability
    )
