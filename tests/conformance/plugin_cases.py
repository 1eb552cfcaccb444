"""plugins_v_old*.json: every predicate and score of Knative 1.16, one pod at a time, on Knative's
own states.

A case gives Knative's State (spreads, free list, schedulable pods, nodes); a ``Spread`` is made of
it and our plugin, made from the case's arguments, must give the same message or score. Scores
compare as numbers, without the wrap of the weighted ones.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from extender.engine.pods.claims import PodClaims
from extender.engine.pods.pod_loads import NO_LOADS, PodLoads
from extender.engine.pods.topology import Topology, Zones
from extender.engine.policy.arguments import arguments_from
from extender.engine.policy.framework import PlaceUnknown
from extender.engine.policy.registry import BUILT_IN_PLUGINS, Maker
from extender.engine.policy.spread import Spread
from extender.model.errors import InvalidObject
from extender.model.objects import StatefulSet, ordinal_of
from tests.conformance.result import Case, Check, Difference

INVALID_ARGUMENTS = "invalid arguments"
WEIGHT_WRAPS_AT = 2**64


@dataclass
class Places:
    """A recorded State as a spread reads a pool."""

    by_ordinal: dict[int, PodClaims]
    topology: Topology
    zones: dict[str, int]
    nodes: dict[str, int]
    schedulable: int
    room: int
    closed: int
    stateful_set: StatefulSet
    free_by_zone: Mapping[str, int] = field(default_factory=dict)
    """Only ties are decided by it, and the cases have none."""
    load: PodLoads = NO_LOADS

    @property
    def hosting(self) -> Zones:
        return self.topology


def free_in(state: Mapping[str, Any], ordinal: int) -> int:
    """Knative's Free(): the free list's entry, or the capacity past its end."""
    free: list[int] = state["freeCap"]
    capacity: int = state["capacity"]
    return free[ordinal] if ordinal < len(free) else capacity


def places_of(state: Mapping[str, Any], pods: list[Mapping[str, Any]], asked: int) -> Places:
    """The pods that the case lists, those that are schedulable, the one it asks about, and their
    nodes.
    """
    topology = Topology()
    topology.zone_of = dict(state["nodeToZoneMap"])
    topology.nodes_in = dict(Counter(topology.zone_of.values()))
    prefix = state["statefulSetName"]
    nodes = {ordinal_of(pod["name"]): pod["node"] for pod in pods}
    by_ordinal = {}
    for ordinal in {*nodes, *state["schedulablePods"], asked} - {None}:
        pod = by_ordinal[ordinal] = PodClaims(f"{prefix}-{ordinal}", ordinal)
        node = nodes.get(ordinal, "")
        pod.location = (node, topology.zone_of.get(node, ""))
    schedulable = sum(1 << ordinal for ordinal in state["schedulablePods"])
    room = sum(1 << ordinal for ordinal in state["schedulablePods"] if free_in(state, ordinal) > 0)
    stateful_set = StatefulSet(namespace="ns", name=prefix, replicas=state["replicas"])
    return Places(by_ordinal, topology, {}, {}, schedulable, room, 0, stateful_set)


def spread_of(
    state: Mapping[str, Any], pods: list[Mapping[str, Any]], asked: Mapping[str, Any]
) -> Spread:
    """The spread of the vpod asked about, with Knative's entries of no vreplicas, which its plugins
    can see.
    """
    vpod = asked["vpod"]
    spread = Spread(
        places_of(state, pods, asked["pod_id"]), lambda ordinal: free_in(state, ordinal)
    )
    counts = state["podSpread"].get(vpod) or {}
    spread.pods = {
        ordinal: n for name, n in counts.items() if (ordinal := ordinal_of(name)) is not None
    }
    spread.nodes = dict(state["nodeSpread"].get(vpod) or {})
    spread.zones = dict(state["zoneSpread"].get(vpod) or {})
    spread.own = sum(1 << ordinal for ordinal, count in spread.pods.items() if count)
    return spread


def answer(case: Mapping[str, Any], spread: Spread) -> dict[str, str]:
    """What our plugin says, in the words of a case: code and message, and the score where one is
    asked for.
    """
    maker = maker_of(case["plugin"], case["kind"])
    scores = {"score": "0"} if case["kind"] == "score" else {}
    if maker.signature and not isinstance(case["args"], str):
        return {"code": "Unschedulable", "message": INVALID_ARGUMENTS, **scores}
    try:
        given = case["args"] if maker.signature else None
        plugin = maker.make(arguments_from(given, maker.signature, case["plugin"], "args"))
    except InvalidObject:
        return {"code": "Unschedulable", "message": INVALID_ARGUMENTS, **scores}
    candidate = spread.candidate(case["pod_id"])
    if case["kind"] == "filter":
        why = plugin.filter(candidate, spread)
        return {"code": "Unschedulable" if why else "Success", "message": why}
    ask = plugin.score if hasattr(plugin, "score") else plugin.deschedule
    try:
        return {"code": "Success", "message": "", "score": str(ask(candidate, spread))}
    except PlaceUnknown as error:
        return {"code": "Error", "message": str(error), "score": "0"}


def maker_of(plugin: str, kind: str) -> Maker[Any]:
    """What makes the plugin in a case's role; Knative asks deschedulers for scores too."""
    factory = BUILT_IN_PLUGINS[plugin]
    found = factory.filter if kind == "filter" else factory.score or factory.deschedule
    if found is None:
        raise LookupError(f"{plugin} is no {kind}")
    return found


def compare(case: Mapping[str, Any], expected: Mapping[str, Any], spread: Spread) -> str | None:
    """None where our answer is the recorded one."""
    found = answer(case, spread)
    wanted = {name: expected.get(name, "0") for name in found}
    if found == wanted:
        return None
    what = f"{case['kind']} {case['plugin']} {case['args']!r} of {case['vpod']} on {case['pod_id']}"
    return f"{what}: expected {wanted}, found {found}"


def weighing(result: Mapping[str, Any]) -> str | None:
    """None where the weighted score is the score times the weight, once wrapped as Knative's."""
    weighted = int(result["score"]) * result["weight"]
    if str(weighted % WEIGHT_WRAPS_AT) == result["weighted_score"]:
        return None
    return f"{result['plugin']}: {weighted} does not wrap to {result['weighted_score']}"


def check_one(case: Case) -> str | Difference | None:
    """One row of plugins_v_old.json."""
    state, pods = case["state"], case.get("pods") or []
    return compare(case, case["expected"], spread_of(state, pods, case))


def check_results(case: Case) -> str | Difference | None:
    """All results of one case of plugins_v_old_observed.json: each plugin, on each
    schedulable pod.
    """
    if case["kind"] != "plugins":
        return f"unknown kind {case['kind']!r}"
    state = case["expected"]["state"]
    problems = [
        compare(result, result, spread_of(state, case["pods"], result))
        for result in case["expected"]["results"]
    ]
    problems += [
        weighing(result) for result in case["expected"]["results"] if "weighted_score" in result
    ]
    return "; ".join(problem for problem in problems if problem) or None


FILES: dict[str, Check] = {
    "plugins_v_old.json": check_one,
    "plugins_v_old_observed.json": check_results,
}
