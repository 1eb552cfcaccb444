"""The fields of an AdapterPool's spec that a what-if and a replay may change. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from extender.model.objects import AdapterPool

SETTINGS: Final[Mapping[str, tuple[str, int]]] = {
    "slotsPerPod": ("slots_per_pod", 1),
    "minPods": ("min_pods", 0),
    "maxPods": ("max_pods", 0),
    "minPodsPerVPod": ("min_pods_per_vpod", 0),
}
"""Field -> its name in the model, and its minimum."""
OVER_TIME: Final[Mapping[str, tuple[str, int]]] = {
    **SETTINGS,
    "scaleDownPeriodSeconds": ("scale_down_period_s", 1),
    "movesPerPeriod": ("moves_per_period", 0),
    "cooldownSeconds": ("move_cooldown_s", 0),
}
"""Those that a replay may change: some have no effect at one moment."""


def with_settings(pool: AdapterPool, settings: Mapping[str, int], profile: str) -> AdapterPool:
    """Return the pool with these values of fields, and with the profile unless it is ""."""
    named = {OVER_TIME[field][0]: value for field, value in settings.items()}
    return replace(pool, profile=profile or pool.profile, **named)  # type: ignore[arg-type]  # all of them are counts
