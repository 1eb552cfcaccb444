"""Where scheduling differs on purpose from Knative up to 1.16: conditions on the input of one call."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from extender.core.model import ordinal_of
from extender.core.names import NOT_READY_TAINT
from tests.conformance.policies import Policy
from tests.conformance.result import Difference
from tests.conformance.state_cases import World


@dataclass(frozen=True)
class Call:
    """One Schedule(``key``) in ``world``, whose ``decided`` is what Knative has reserved."""

    world: World
    key: str
    policy: Policy
    placements: list[dict[str, Any]]
    """Knative's answer."""
    left: int

    @property
    def own(self) -> dict[str, int]:
        """What is reserved for the vpod."""
        return self.world.decided.get(self.key, {})

    @property
    def published(self) -> dict[str, int]:
        """The vpod's status, with entries of 0 vreplicas."""
        return self.world.status[self.key]

    @cached_property
    def schedulable(self) -> frozenset[str]:
        """Names of the pods that may take work."""
        pool = self.world.build()
        return frozenset(pod.name for pod in pool.members() if pod.schedulable)

    @property
    def wanted(self) -> int:
        """vreplicas."""
        return self.world.vreplicas[self.key]

    @property
    def standing(self) -> dict[str, int]:
        """What is published on schedulable pods, without entries of 0."""
        return {name: count for name, count in self.published.items() if count and name in self.schedulable}

    @cached_property
    def kept(self) -> dict[str, int]:
        """What of that no overcommit trims; 0 where all of it is trimmed."""
        pods = self.world.build().pods
        over = {name: max(0, pods[name].placed - pods[name].capacity) for name in self.standing}
        return {name: max(0, count - over[name]) for name, count in self.standing.items()}

    @property
    def wants_fewer(self) -> bool:
        """Whether vreplicas are to be taken away."""
        return sum(self.kept.values()) > self.wanted


@dataclass(frozen=True)
class Rule:
    """A named difference."""

    holds: Callable[[Call], bool]
    difference: Difference


def _members(call: Call) -> list[str]:
    return [f"{call.world.stateful_set}-{ordinal}" for ordinal in range(call.world.replicas)]


def fills_what_is_not_schedulable(call: Call) -> bool:
    """Whether MAXFILLUP meets an ordinal whose pod takes no work."""
    return call.policy.fills_up and any(name not in call.schedulable for name in _members(call))


def fills_in_another_order(call: Call) -> bool:
    """Whether MAXFILLUP meets a status that is not in the order of its ordinals."""
    ordinals = [ordinal_of(name) or 0 for name in call.standing]
    return call.policy.fills_up and ordinals != sorted(ordinals)


def has_not_ready_node(call: Call) -> bool:
    """Whether a node is tainted as not Ready."""
    return any(
        taint["key"] == NOT_READY_TAINT and taint.get("effect") != "PreferNoSchedule"
        for node in call.world.nodes
        for taint in node.get("taints") or []
    )


def has_no_policy_to_place(call: Call) -> bool:
    """Whether there are no scheduler policies, and a descheduler has nothing to take away."""
    if call.policy.fills_up or call.policy.scheduler is not None:
        return False
    return call.policy.descheduler is None or not call.wants_fewer


def ignores_room(call: Call) -> bool:
    """Whether policies place without the predicate that looks at the room."""
    return call.policy.scheduler is not None and "PodFitsResources" not in call.policy.predicates


def may_wrap(call: Call) -> bool:
    """Whether the highest ordinal's weight can outweigh all others, so that a weighted sum wraps."""
    weights = call.policy.removal_weights
    highest = max((ordinal_of(name) or 0 for name in call.schedulable), default=0)
    others = sum(weight for name, weight in weights.items() if name != "RemoveWithHighestOrdinalPriority")
    return call.wants_fewer and 0 < others <= weights.get("RemoveWithHighestOrdinalPriority", 0) * highest


def may_empty_a_pod(call: Call) -> bool:
    """Whether a pod with no vreplicas can be among those to take from."""
    if call.policy.descheduler is None or not call.wants_fewer:
        return False
    surplus = sum(call.kept.values()) - call.wanted
    named = [count for name, count in call.published.items() if name in call.schedulable]
    return any(count < surplus or not count for count in named)


def filters_what_is_taken(call: Call) -> bool:
    """Whether a descheduler has predicates, which may let none of the vpod's pods pass."""
    return bool(call.policy.removal_predicates) and call.wants_fewer


def has_entries_of_nothing(call: Call) -> bool:
    """Whether a status or reservation of 0 vreplicas counts as a pod in use."""
    return any(not count for count in [*call.published.values(), *call.own.values()])


def has_own_reservation(call: Call) -> bool:
    """Whether something else is decided for the vpod than it publishes."""
    return any(call.published.get(name, 0) != count for name, count in call.own.items())


def others_shrink(call: Call) -> bool:
    """Whether another vpod's reservation on a pod is smaller than what it publishes there."""
    return any(
        count < call.world.status.get(key, {}).get(name, 0)
        for key, counts in call.world.decided.items()
        for name, count in counts.items()
        if key != call.key
    )


def others_reserve_without_need(call: Call) -> bool:
    """Whether a reservation is of a vpod that is gone, or that publishes all that it wants."""
    return any(
        counts
        and key != call.key
        and sum(call.world.status.get(key, {}).values()) >= call.world.vreplicas.get(key, 0)
        for key, counts in call.world.decided.items()
    )


def is_trimmed(call: Call) -> bool:
    """Whether policies place afresh what stood on a pod that is trimmed to nothing, or take away from a trimmed pod."""
    if call.policy.fills_up:
        return False
    return not all(call.kept.values()) or (call.wants_fewer and call.kept != call.standing)


def has_ties(call: Call) -> bool:
    """Whether pods may have equal scores, of which Knative takes any."""
    names = call.policy.removal_weights if call.wants_fewer else call.policy.placing_weights
    return not call.policy.fills_up and not names.keys() & {
        "LowestOrdinalPriority",
        "RemoveWithHighestOrdinalPriority",
    }


TIES = Difference("ties go to the lowest ordinal", "Knative takes any of the pods that score best")
"""Only the totals are compared."""
REFUSED = Difference(
    "what a policy cannot mean is refused",
    "Knative ignores names that it does not know, and places nothing at all where arguments are wrong",
)
RULES = (
    # The more special ones first: the first that holds gives its name.
    Rule(
        fills_what_is_not_schedulable,
        Difference(
            "only schedulable pods are filled",
            "MAXFILLUP gives vreplicas also to pods that are missing, pending, annotated or on a bad node",
        ),
    ),
    Rule(
        fills_in_another_order,
        Difference(
            "a vpod's pods are in the order of their ordinals",
            "MAXFILLUP fills them in the order of the status, whoever has written that",
        ),
    ),
    Rule(
        has_not_ready_node,
        Difference(
            "a node that is not Ready takes no new work",
            "Knative 1.16 looks at the taint of unreachable nodes only",
        ),
    ),
    Rule(
        has_no_policy_to_place,
        Difference(
            "missing vreplicas are placed without policies too",
            "Knative without scheduler policies leaves a vpod short, and says that all is well",
        ),
    ),
    Rule(
        ignores_room,
        Difference(
            "capacity always counts",
            "Knative overcommits pods where the predicate PodFitsResources is left out",
        ),
    ),
    Rule(
        may_wrap,
        Difference(
            "weighted sums never wrap",
            "Knative's wrap modulo 2^64: a great weight of the highest ordinal makes it the last to be emptied",
        ),
    ),
    Rule(
        may_empty_a_pod,
        Difference(
            "an empty pod gives nothing away",
            "Knative takes again and again from a pod that has nothing left, and leaves too many elsewhere",
        ),
    ),
    Rule(
        filters_what_is_taken,
        Difference(
            "too many are always taken away",
            "Knative ends with too many, and says that all is well, where predicates let no pod pass",
        ),
    ),
    Rule(
        has_own_reservation,
        Difference(
            "a failed attempt leaves nothing behind",
            "Knative keeps what it tried in vain reserved, where the next attempt misses it",
        ),
    ),
    Rule(
        others_shrink,
        Difference(
            "room is promised once a shrink is written",
            "Knative gives away what a decision takes from a pod before the status says so",
        ),
    ),
    Rule(
        others_reserve_without_need,
        Difference(
            "a reservation lasts until it is written",
            "Knative forgets it, in the middle of the next call, where the status has enough vreplicas already",
        ),
    ),
    Rule(
        has_entries_of_nothing,
        Difference(
            "a placement of no vreplicas is no placement",
            "Knative counts a pod with an entry of 0 as one in use",
        ),
    ),
    Rule(
        is_trimmed,
        Difference(
            "what is trimmed away no longer counts",
            "Knative places it anew, and its policies still count it on the overcommitted pod that it has left",
        ),
    ),
)
