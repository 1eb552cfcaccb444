"""A call of Knative's Schedule up to 1.16 as Knative takes it, for rules of ``schedule_old_rules``.

Most views change the input in what their rule is about, so that our answer there has to be
Knative's answer. Views of several rules go one after the other. The last four take away from the
input what a rule is about: ours has to stay the same.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from extender.engine.policy.framework import DeschedulePlugin, Scope, Weighted
from extender.engine.policy.profile import Profile
from extender.engine.policy.spread import Candidate, Spread
from extender.model.names import UNREACHABLE_TAINT
from extender.model.objects import placement_order
from tests.conformance.schedule_old_call import Call

Viewed = tuple[Call, Profile]
View = Callable[[Call, Profile], Viewed]

NOBODY = "nobody/nothing"
"""A vpod that holds what Knative counts as taken although nobody has it."""
GOOD_NODE = "good"


def as_it_is(call: Call, profile: Profile) -> Viewed:
    """No change."""
    return call, profile


def all_ordinals_schedulable(call: Call, profile: Profile) -> Viewed:
    """Every ordinal has a pod that takes work. What the vpod has on others is dropped, and still
    takes its room.
    """
    lost = {name: count for name, count in call.published.items() if name not in call.schedulable}
    own = {name: count for name, count in call.published.items() if name in call.schedulable}
    call = _holding(call, lost)
    rest = [pod for pod in call.world.pods if pod["name"] not in call.members]
    pods = [{"name": name, "node": GOOD_NODE} for name in call.members]
    status = {**call.world.status, call.key: own}
    nodes = [*call.world.nodes, {"name": GOOD_NODE}]
    return _in_world(call, status=status, pods=[*pods, *rest], nodes=nodes), profile


def only_unreachable_nodes_are_bad(call: Call, profile: Profile) -> Viewed:
    """Without the taints that Knative does not look at."""
    nodes = [
        {**node, "taints": [t for t in node.get("taints") or [] if _counts(t)]}
        for node in call.world.nodes
    ]
    return _in_world(call, nodes=nodes), profile


def stays_as_it_is(call: Call, profile: Profile) -> Viewed:
    """As many are wanted as stand."""
    return _wanting(call, sum(call.kept.values())), profile


def stops_early(call: Call, profile: Profile) -> Viewed:
    """As many are wanted as Knative has ended with, which may not be fewer than are wanted."""
    found = sum(item["vreplicas"] for item in call.placements)
    return _wanting(call, max(call.wanted, found)), profile


def endless_room(call: Call, profile: Profile) -> Viewed:
    """Every pod has room for all that is wanted."""
    return _in_world(call, capacity=call.world.capacity + call.wanted), profile


def wrapping(call: Call, profile: Profile) -> Viewed:
    """The deschedulers' sums modulo 2^64."""
    summed: Weighted[DeschedulePlugin] = Weighted(Wrapping(profile.deschedulers), 1)
    return call, replace(profile, deschedulers=(summed,))


def own_reservations_are_taken(call: Call, profile: Profile) -> Viewed:
    """What is reserved for the vpod beyond its status takes room, and nothing else is known
    of it.
    """
    more = {name: count - call.published.get(name, 0) for name, count in call.own.items()}
    decided = {key: counts for key, counts in call.world.decided.items() if key != call.key}
    taken = {name: count for name, count in more.items() if count > 0}
    return _holding(_in_world(call, decided=decided), taken), profile


def reservations_are_taken(call: Call, profile: Profile) -> Viewed:
    """What is reserved for other vpods beyond their status takes room as if it were published."""
    taken: Counter[str] = Counter()
    decided: dict[str, dict[str, int]] = {}
    for key, counts in call.world.decided.items():
        for name, count in counts.items():
            more = count - call.world.status.get(key, {}).get(name, 0)
            if key != call.key and more > 0:
                taken[name] += more
            else:
                decided.setdefault(key, {})[name] = count
    return _holding(_in_world(call, decided=decided), taken), profile


def forgets_needless_reservations(call: Call, profile: Profile) -> Viewed:
    """Without reservations of vpods that are gone, or that publish all that they want."""
    decided = {
        key: counts
        for key, counts in call.world.decided.items()
        if key == call.key or is_pending(call, key)
    }
    return _in_world(call, decided=decided), profile


def shrunk_already(call: Call, profile: Profile) -> Viewed:
    """Where another vpod has reserved less than it publishes, it publishes that."""
    status = {key: dict(counts) for key, counts in call.world.status.items()}
    decided = {key: dict(counts) for key, counts in call.world.decided.items()}
    for key, counts in call.world.decided.items():
        for name, count in counts.items():
            if key != call.key and count < status.get(key, {}).get(name, 0):
                status[key][name] = decided[key].pop(name)
    kept = {key: counts for key, counts in decided.items() if counts}
    return _in_world(call, status=status, decided=kept), profile


def trimmed_still_takes_room(call: Call, profile: Profile) -> Viewed:
    """What is trimmed to nothing is not the vpod's any more, and takes room."""
    gone = {name: call.standing[name] for name, count in call.kept.items() if not count}
    own = {name: count for name, count in call.published.items() if name not in gone}
    return _holding(_in_world(call, status={**call.world.status, call.key: own}), gone), profile


def without_own_reservations(call: Call, profile: Profile) -> Viewed:
    """Nothing is reserved for the vpod. Under MAXFILLUP no change: a pod that it has filled counts
    as full, as in Knative.
    """
    if call.policy.fills_up:
        return call, profile
    decided = {key: counts for key, counts in call.world.decided.items() if key != call.key}
    return _in_world(call, decided=decided), profile


def without_entries_of_nothing(call: Call, profile: Profile) -> Viewed:
    """Neither its status nor its reservation has an entry of 0."""
    status = {**call.world.status, call.key: _without_zeros(call.published)}
    decided = {**call.world.decided, call.key: _without_zeros(call.own)}
    return _in_world(call, status=status, decided=decided), profile


def in_order(call: Call, profile: Profile) -> Viewed:
    """Its status is in the order of the ordinals."""
    own = {name: call.published[name] for name in sorted(call.published, key=placement_order)}
    return _in_world(call, status={**call.world.status, call.key: own}), profile


def trimmed_before(call: Call, profile: Profile) -> Viewed:
    """It publishes what is left of its status."""
    return _in_world(
        call, status={**call.world.status, call.key: _without_zeros(call.kept)}
    ), profile


def is_pending(call: Call, key: str) -> bool:
    """Whether the vpod exists and publishes less than it wants."""
    wanted = call.world.vreplicas
    return key in wanted and sum(call.world.status[key].values()) < wanted[key]


@dataclass(frozen=True)
class Wrapping:
    """The sum of deschedulers as Go's uint64 has it."""

    scored: tuple[Weighted[DeschedulePlugin], ...]
    name: ClassVar[str] = "Wrapping"
    scope: ClassVar[Scope] = Scope.POD

    def deschedule(self, candidate: Candidate, spread: Spread) -> int:
        """Modulo 2^64."""
        return (
            sum(item.weight * item.plugin.deschedule(candidate, spread) for item in self.scored)
            % 2**64
        )


def _in_world(call: Call, **fields: Any) -> Call:
    return replace(call, world=replace(call.world, **fields))


def _without_zeros(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def _wanting(call: Call, vreplicas: int) -> Call:
    return _in_world(call, vreplicas={**call.world.vreplicas, call.key: vreplicas})


def _holding(call: Call, taken: Mapping[str, int]) -> Call:
    """With ``taken`` slots of pods held by nobody, beside those that are so already."""
    held = call.world.status.get(NOBODY, {})
    both = {name: held.get(name, 0) + taken.get(name, 0) for name in {**held, **taken}}
    vreplicas = {**call.world.vreplicas, NOBODY: sum(both.values())}
    return _in_world(call, status={**call.world.status, NOBODY: both}, vreplicas=vreplicas)


def _counts(taint: Mapping[str, Any]) -> bool:
    return taint["key"] == UNREACHABLE_TAINT and taint.get("effect") in {"NoExecute", "NoSchedule"}
