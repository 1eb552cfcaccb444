"""The plugins by name, and how they are made: Knative's of 1.16 and our own. Third parties add
theirs (``extender.config.plugins``).

A plugin may be listed in several roles: under filters, scores and deschedulers. Each role has its
own arguments. For its priorities, Knative reads a MaxSkew and does not use it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from extender.engine.policy.arguments import NO_ARGUMENTS, Argument, Arguments, Signature
from extender.engine.policy.availability import (
    AvailabilityNodePriority,
    AvailabilityZonePriority,
    RemoveWithAvailabilityNodePriority,
    RemoveWithAvailabilityZonePriority,
)
from extender.engine.policy.even_pod_spread import EvenPodSpread, RemoveWithEvenPodSpreadPriority
from extender.engine.policy.framework import DeschedulePlugin, FilterPlugin, ScorePlugin
from extender.engine.policy.least_allocated import LeastAllocated
from extender.engine.policy.least_load import LeastLoad
from extender.engine.policy.ordinals import LowestOrdinalPriority, RemoveWithHighestOrdinalPriority
from extender.engine.policy.resources import NoMaxResourceCount, PodFitsResources
from extender.engine.policy.spreading import NodeSpread, PodSpread, ZoneSpread
from extender.model.amounts import SLOTS
from extender.model.errors import InvalidObject

P_co = TypeVar("P_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Maker(Generic[P_co]):
    """Makes a plugin. ``make`` gets every argument of the signature, checked."""

    make: Callable[[Arguments], P_co]
    signature: Signature = field(default_factory=lambda: NO_ARGUMENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFactory:
    """What a name stands for, in each role in which it can be listed."""

    name: str
    filter: Maker[FilterPlugin] | None = None
    score: Maker[ScorePlugin] | None = None
    deschedule: Maker[DeschedulePlugin] | None = None


Registry = Mapping[str, PluginFactory]

_MAX_SKEW: Final[Signature] = {"MaxSkew": Argument(int)}
_UNUSED_SKEW: Final[Signature] = {"MaxSkew": Argument(int, 0)}
_NUM_PARTITIONS: Final[Signature] = {"NumPartitions": Argument(int)}


_DIMENSION: Final[Signature] = {"Dimension": Argument(str, SLOTS)}
_SPREAD_SKEW: Final[Signature] = {"MaxSkew": Argument(int, 1, 1)}


def _spread(plugin: type[ZoneSpread] | type[NodeSpread], *, count_empty: bool) -> PluginFactory:
    return PluginFactory(
        name=plugin.name,
        filter=Maker(
            lambda args: plugin(int(args["MaxSkew"]), bool(args["CountEmpty"])),
            {**_SPREAD_SKEW, "CountEmpty": Argument(bool, count_empty)},
        ),
        score=Maker(lambda _: plugin()),
        deschedule=Maker(lambda _: plugin()),
    )


_ALL: Final = (
    PluginFactory(name="PodFitsResources", filter=Maker(lambda _: PodFitsResources())),
    PluginFactory(
        name="NoMaxResourceCount",
        filter=Maker(lambda args: NoMaxResourceCount(int(args["NumPartitions"])), _NUM_PARTITIONS),
    ),
    PluginFactory(
        name="EvenPodSpread",
        filter=Maker(lambda args: EvenPodSpread(int(args["MaxSkew"])), _MAX_SKEW),
        score=Maker(lambda args: EvenPodSpread(int(args["MaxSkew"])), _UNUSED_SKEW),
    ),
    PluginFactory(
        name="AvailabilityNodePriority",
        score=Maker(lambda _: AvailabilityNodePriority(), _UNUSED_SKEW),
    ),
    PluginFactory(
        name="AvailabilityZonePriority",
        score=Maker(lambda _: AvailabilityZonePriority(), _UNUSED_SKEW),
    ),
    PluginFactory(name="LowestOrdinalPriority", score=Maker(lambda _: LowestOrdinalPriority())),
    PluginFactory(
        name="RemoveWithEvenPodSpreadPriority",
        deschedule=Maker(lambda _: RemoveWithEvenPodSpreadPriority(), _UNUSED_SKEW),
    ),
    PluginFactory(
        name="RemoveWithAvailabilityNodePriority",
        deschedule=Maker(lambda _: RemoveWithAvailabilityNodePriority(), _UNUSED_SKEW),
    ),
    PluginFactory(
        name="RemoveWithAvailabilityZonePriority",
        deschedule=Maker(lambda _: RemoveWithAvailabilityZonePriority(), _UNUSED_SKEW),
    ),
    PluginFactory(
        name="RemoveWithHighestOrdinalPriority",
        deschedule=Maker(lambda _: RemoveWithHighestOrdinalPriority()),
    ),
    PluginFactory(name=LeastLoad.name, score=Maker(lambda _: LeastLoad())),
    _spread(ZoneSpread, count_empty=True),
    _spread(NodeSpread, count_empty=False),
    PluginFactory(
        name="PodSpread",
        filter=Maker(lambda args: PodSpread(int(args["MaxSkew"])), _SPREAD_SKEW),
        score=Maker(lambda _: PodSpread()),
        deschedule=Maker(lambda _: PodSpread()),
    ),
    PluginFactory(
        name="LeastAllocated",
        score=Maker(lambda args: LeastAllocated(str(args["Dimension"])), _DIMENSION),
        deschedule=Maker(lambda args: LeastAllocated(str(args["Dimension"])), _DIMENSION),
    ),
)

BUILT_IN_PLUGINS: Final[Registry] = MappingProxyType({factory.name: factory for factory in _ALL})


def with_plugins(added: Registry) -> Registry:
    """The built-in plugins and third-party ones. Raises InvalidObject if a name is taken or does
    not match.
    """
    for name, factory in added.items():
        if name in BUILT_IN_PLUGINS:
            raise InvalidObject(
                f"plugin {name}", "name", "is taken by a plugin that is already there"
            )
        if factory.name != name:
            raise InvalidObject(f"plugin {name}", "name", f"is registered as {factory.name!r}")
        if factory.filter is None and factory.score is None and factory.deschedule is None:
            raise InvalidObject(
                f"plugin {name}", "", "is neither a filter nor a score nor a descheduler"
            )
    return MappingProxyType({**BUILT_IN_PLUGINS, **added})
