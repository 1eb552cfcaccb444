"""What the configuration file of a simulated world has: profiles with scores that no built-in
profile has, for pools of the part ``ownProfiles``, and a source of load, for those of
``loadSource``.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from extender.config.model import Config
from extender.config.profiles import load_profiles
from extender.engine.policy.profile import Profile
from extender.kube.api import Obj
from extender.lab.simulation.world.scale import LOAD_SOURCE

SOURCE_DOCUMENT: Final[Obj] = {
    "name": LOAD_SOURCE,
    "url": "https://prometheus.monitoring.svc:9090",
    "query": "$pool",
    "periodSeconds": 5,
    "timeoutSeconds": 3,
}
"""The entry of ``loadSources``. The query is the pool's name alone (``SimulatedPrometheus``)."""

SPREAD_BY_LOAD: Final = "spread-by-load"
"""As ``spread``, and new vreplicas go to pods with little load."""
LEAST_ALLOCATED: Final[Mapping[str, str]] = {
    "even-slots": "",
    "even-cpu": "cpu",
    "even-memory": "memory",
}
"""Profile -> the dimension that it wants even; "": slots."""
OWN_PROFILES: Final = (SPREAD_BY_LOAD, "by-load", *LEAST_ALLOCATED)


def _scores(*weights: tuple[str, int]) -> list[Obj]:
    return [{"name": name, "weight": weight} for name, weight in weights]


def _even(name: str, dimension: str) -> Obj:
    plugin: dict[str, Any] = {"name": "LeastAllocated"}
    if dimension:
        plugin["args"] = {"Dimension": dimension}
    return {"name": name, "scores": [plugin], "deschedulers": [plugin]}


_SPREAD: Final = (("ZoneSpread", 100), ("NodeSpread", 10), ("PodSpread", 1))
_DOCUMENTS: Final[tuple[Obj, ...]] = (
    {
        "name": SPREAD_BY_LOAD,
        "scores": _scores(*_SPREAD, ("LeastLoad", 1)),
        "deschedulers": _scores(*_SPREAD),
    },
    {"name": "by-load", "scores": _scores(("LeastLoad", 1))},
    *(_even(name, dimension) for name, dimension in LEAST_ALLOCATED.items()),
)
"""``profiles`` of the configuration."""


@cache
def all_profiles() -> Mapping[str, Profile]:
    """Return the built-in profiles and those of the configuration, by name."""
    return load_profiles(Config(profiles=_DOCUMENTS), "")
