"""The profiles that every installation has: ``default``, ``pack``, ``spread``, ``ha``, ``knative``,
``knative-maxfillup``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from extender.engine.policy.framework import Weighted
from extender.engine.policy.ordinals import LowestOrdinalPriority, RemoveWithHighestOrdinalPriority
from extender.engine.policy.profile import (
    DEFAULT_PROFILE,
    KNATIVE_1_16_RULES,
    KNATIVE_RULES,
    Profile,
    Ties,
)
from extender.engine.policy.spreading import NodeSpread, PodSpread, ZoneSpread

PACK_PROFILE: Final = Profile(
    name="pack",
    scores=(Weighted(LowestOrdinalPriority(), 1),),
    deschedulers=(Weighted(RemoveWithHighestOrdinalPriority(), 1),),
)
"""Uses few pods: fills the lowest ordinal first, and empties the highest first."""

SPREAD_PROFILE: Final = Profile(
    name="spread",
    scores=(Weighted(ZoneSpread(), 100), Weighted(NodeSpread(), 10), Weighted(PodSpread(), 1)),
    deschedulers=(
        Weighted(ZoneSpread(), 100),
        Weighted(NodeSpread(), 10),
        Weighted(PodSpread(), 1),
    ),
    ties=Ties.MOST_FREE_ZONE,
)
"""Spreads over zones, then nodes, then pods, as evenly as the room allows. No vreplica waits for
it. Of equal zones the one with the most free slots comes first.
"""

HA_PROFILE: Final = Profile(
    name="ha",
    filters=(ZoneSpread(max_skew=1),),
    scores=SPREAD_PROFILE.scores,
    deschedulers=SPREAD_PROFILE.deschedulers,
    ties=SPREAD_PROFILE.ties,
)
"""As ``spread``, but no zone may hold more than one vreplica more than another. Vreplicas wait for
room instead.

The loss of one of n zones takes at most the n-th part of a vpod's vreplicas, rounded up.
"""

KNATIVE_PROFILE: Final = Profile(name="knative", rules=KNATIVE_RULES)
"""Knative's present placing. The rules in which we differ are off."""

KNATIVE_MAXFILLUP_PROFILE: Final = Profile(name="knative-maxfillup", rules=KNATIVE_1_16_RULES)
"""Knative's placing without policies up to 1.16 (MAXFILLUP), except that it fills no pods that take
no work.
"""

BUILT_IN_PROFILES: Final[Mapping[str, Profile]] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            DEFAULT_PROFILE,
            PACK_PROFILE,
            SPREAD_PROFILE,
            HA_PROFILE,
            KNATIVE_PROFILE,
            KNATIVE_MAXFILLUP_PROFILE,
        )
    }
)
