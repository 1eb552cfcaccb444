"""Where scheduling differs on purpose from Knative up to 1.16: conditions on the input of
one call.
"""

from collections.abc import Callable
from dataclasses import dataclass

from extender.model.names import NOT_READY_TAINT
from extender.model.objects import ordinal_of
from tests.conformance.result import Difference
from tests.conformance.schedule_old_call import Call
from tests.conformance.schedule_old_views import (
    View,
    all_ordinals_schedulable,
    as_it_is,
    endless_room,
    forgets_needless_reservations,
    in_order,
    is_pending,
    only_unreachable_nodes_are_bad,
    own_reservations_are_taken,
    reservations_are_taken,
    shrunk_already,
    stays_as_it_is,
    stops_early,
    trimmed_before,
    trimmed_still_takes_room,
    without_entries_of_nothing,
    without_own_reservations,
    wrapping,
)

BLIND = {"PodFitsResources", "LowestOrdinalPriority", "RemoveWithHighestOrdinalPriority"}
"""Policies that do not look at what the vpod has on other pods."""


def fills_what_is_not_schedulable(call: Call) -> bool:
    """Whether MAXFILLUP comes to an ordinal whose pod takes no work, before all that is missing has
    found room.
    """
    if not call.policy.fills_up:
        return False
    missing = call.wanted - sum(call.kept.values())
    missing -= sum(max(0, call.room[name] - count) for name, count in call.kept.items())
    for name in call.members:
        if missing <= 0:
            return False
        if name not in call.schedulable:
            return True
        missing -= call.room[name] if name not in call.kept else 0
    return False


def fills_in_another_order(call: Call) -> bool:
    """Whether MAXFILLUP adds to a status of several pods that is not in the order of its
    ordinals.
    """
    ordinals = [ordinal_of(name) or 0 for name in call.standing]
    return call.policy.fills_up and call.changes and ordinals != sorted(ordinals)


def has_not_ready_node(call: Call) -> bool:
    """Whether a node is tainted as not Ready, and something is to be decided."""
    return call.wanted > 0 and any(
        taint["key"] == NOT_READY_TAINT and taint.get("effect") != "PreferNoSchedule"
        for node in call.world.nodes
        for taint in node.get("taints") or []
    )


def has_no_policy_to_place(call: Call) -> bool:
    """Whether there are no scheduler policies, and a descheduler has nothing to take away."""
    if call.policy.fills_up or call.policy.scheduler is not None:
        return False
    if sum(call.kept.values()) == call.wanted:
        return False
    return call.policy.descheduler is None or not call.wants_fewer


def ignores_room(call: Call) -> bool:
    """Whether policies place without the predicate that looks at the room, and a pod has not room
    for all.
    """
    if not call.is_placed_afresh or "PodFitsResources" in call.policy.predicates:
        return False
    return any(room < call.wanted for room in call.room.values())


def may_wrap(call: Call) -> bool:
    """Whether the highest ordinal's weight can outweigh all others, so that a weighted sum
    wraps.
    """
    weights = call.policy.removal_weights
    highest = max((ordinal_of(name) or 0 for name in _to_take_from(call)), default=0)
    others = sum(
        weight for name, weight in weights.items() if name != "RemoveWithHighestOrdinalPriority"
    )
    return (
        call.wants_fewer
        and 0 < others <= weights.get("RemoveWithHighestOrdinalPriority", 0) * highest
    )


def may_empty_a_pod(call: Call) -> bool:
    """Whether a pod with no vreplicas can be among those to take from."""
    if call.policy.descheduler is None or not call.wants_fewer:
        return False
    surplus = sum(call.kept.values()) - call.wanted
    return any(call.kept.get(name, 0) < surplus for name in _to_take_from(call))


def _to_take_from(call: Call) -> list[str]:
    """The pods that Knative takes from: those of the status, also without vreplicas."""
    return [name for name in call.published if name in call.schedulable]


def filters_what_is_taken(call: Call) -> bool:
    """Whether a descheduler has predicates, which may let none of the vpod's pods pass."""
    return bool(call.policy.removal_predicates) and call.wants_fewer


def has_entries_of_nothing(call: Call) -> bool:
    """Whether a status or reservation of 0 vreplicas counts as a pod in use, where policies count
    pods in use.
    """
    nothing = {
        name for counts in (call.published, call.own) for name, count in counts.items() if not count
    }
    if call.policy.fills_up or not call.changes or not nothing & call.schedulable:
        return False
    if call.is_placed_afresh:
        return "NoMaxResourceCount" in call.policy.predicates
    return call.wants_fewer and bool(call.policy.removal_weights.keys() - BLIND)


def has_own_reservation(call: Call) -> bool:
    """Whether something else is decided for the vpod than it publishes, on a pod that it
    may use.
    """
    other = {name for name, count in call.own.items() if call.published.get(name, 0) != count}
    if call.is_trimmed_by_reservation:
        return True
    if not call.changes or (call.policy.fills_up and call.wants_fewer):
        return False
    if call.is_placed_afresh:  # what is kept is forgotten, and its reservation with it
        return bool(other & call.schedulable - {name for name, count in call.kept.items() if count})
    return bool(other & set(call.members))


def others_shrink(call: Call) -> bool:
    """Whether another vpod's reservation on a pod that matters is smaller than what it publishes
    there.
    """
    return call.changes and any(
        count < call.world.status.get(key, {}).get(name, 0) and _matters(call, name)
        for key, counts in call.world.decided.items()
        for name, count in counts.items()
        if key != call.key and (call.policy.fills_up or is_pending(call, key))
    )


def others_reserve_without_need(call: Call) -> bool:
    """Whether a reservation on a pod that matters is of a vpod that is gone, or that publishes all
    that it wants.
    """
    if call.policy.fills_up or not call.changes:
        return False  # MAXFILLUP fills the room as it was before that
    return any(
        count > call.world.status.get(key, {}).get(name, 0) and _matters(call, name)
        for key, counts in call.world.decided.items()
        for name, count in counts.items()
        if key != call.key and not is_pending(call, key)
    )


def others_reserve_too_much(call: Call) -> bool:
    """Whether a pod that the vpod publishes has no room for that beside what is reserved for
    others, and has room beside what they publish.
    """
    return any(
        call.left_by_others[name] < min(count, call.left_by_written[name])
        for name, count in call.standing.items()
    )


def _matters(call: Call, name: str) -> bool:
    return name in call.schedulable or (call.policy.fills_up and name in call.members)


def is_trimmed(call: Call) -> bool:
    """Whether policies place afresh what stood on a pod that is trimmed to nothing, or take away
    from a trimmed pod.

    Only policies that count what stands elsewhere can see it.
    """
    if call.policy.fills_up:
        return False
    if call.is_placed_afresh:
        counting = (call.policy.predicates | call.policy.placing_weights.keys()) - BLIND
        return bool(counting) and not all(call.kept.values())
    return call.wants_fewer and call.kept != call.standing


def hides_a_reservation(call: Call) -> bool:
    """Whether a vpod's own reservation counts as its own in policies, or is smaller than what it
    publishes.
    """
    return not call.policy.fills_up or any(
        count < call.published.get(name, 0) for name, count in call.own.items()
    )


def always(_call: Call) -> bool:
    """Every time."""
    return True


def never(_call: Call) -> bool:
    """Not once."""
    return False


def has_ties(call: Call) -> bool:
    """Whether pods may have equal scores, of which Knative takes any."""
    names = call.policy.removal_weights if call.wants_fewer else call.policy.placing_weights
    return not call.policy.fills_up and not names.keys() & {
        "LowestOrdinalPriority",
        "RemoveWithHighestOrdinalPriority",
    }


@dataclass(frozen=True)
class Rule:
    """A named difference.

    ``seen``: the call as Knative takes it; there our answer must be Knative's. ``unreproducible``:
    whether no such view has all of it; then ours must be the same where the call is ``repaired``:
    what the rule is about plays no part.
    """

    holds: Callable[[Call], bool]
    difference: Difference
    seen: View = as_it_is
    repaired: View = as_it_is
    unreproducible: Callable[[Call], bool] = never


TIES = Difference("ties go to the lowest ordinal", "Knative takes any of the pods that score best")
"""Only the totals are compared."""
REFUSED = Difference(
    "what a policy cannot mean is refused",
    "Knative ignores names that it does not know, and places nothing at all where arguments are "
    "wrong",
)
RULES = (
    # The more special ones first: the first that holds gives its name.
    Rule(
        fills_what_is_not_schedulable,
        Difference(
            "only schedulable pods are filled",
            "MAXFILLUP gives vreplicas also to pods that are missing, pending, annotated or on a "
            "bad node",
        ),
        seen=all_ordinals_schedulable,
    ),
    Rule(
        fills_in_another_order,
        Difference(
            "a vpod's pods are in the order of their ordinals",
            "MAXFILLUP fills them in the order of the status, whoever has written that",
        ),
        repaired=in_order,
        unreproducible=always,
    ),
    Rule(
        has_not_ready_node,
        Difference(
            "a node that is not Ready takes no new work",
            "Knative 1.16 looks at the taint of unreachable nodes only",
        ),
        seen=only_unreachable_nodes_are_bad,
    ),
    Rule(
        has_no_policy_to_place,
        Difference(
            "missing vreplicas are placed without policies too",
            "Knative without scheduler policies leaves a vpod short, and says that all is well",
        ),
        seen=stays_as_it_is,
    ),
    Rule(
        ignores_room,
        Difference(
            "capacity always counts",
            "Knative overcommits pods where the predicate PodFitsResources is left out",
        ),
        seen=endless_room,
    ),
    Rule(
        may_wrap,
        Difference(
            "weighted sums never wrap",
            "Knative's wrap modulo 2^64: a great weight of the highest ordinal makes it the last "
            "to be emptied",
        ),
        seen=wrapping,
    ),
    Rule(
        may_empty_a_pod,
        Difference(
            "an empty pod gives nothing away",
            "Knative takes again and again from a pod that has nothing left, and leaves too many "
            "elsewhere",
        ),
        seen=stops_early,
    ),
    Rule(
        filters_what_is_taken,
        Difference(
            "too many are always taken away",
            "Knative ends with too many, and says that all is well, where predicates let no pod "
            "pass",
        ),
        seen=stops_early,
    ),
    Rule(
        has_own_reservation,
        Difference(
            "a failed attempt leaves nothing behind",
            "Knative keeps what it tried in vain reserved, where the next attempt misses it",
        ),
        seen=own_reservations_are_taken,
        repaired=without_own_reservations,
        unreproducible=hides_a_reservation,
    ),
    Rule(
        others_shrink,
        Difference(
            "room is promised once a shrink is written",
            "Knative gives away what a decision takes from a pod before the status says so",
        ),
        seen=shrunk_already,
    ),
    Rule(
        others_reserve_too_much,
        Difference(
            "what is only reserved pushes nobody out",
            "Knative takes vreplicas off a pod on which others have reserved too much",
        ),
        seen=reservations_are_taken,
    ),
    Rule(
        others_reserve_without_need,
        Difference(
            "a reservation lasts until it is written",
            "Knative forgets it, in the middle of the next call, where the status has enough "
            "vreplicas already",
        ),
        seen=forgets_needless_reservations,
    ),
    Rule(
        has_entries_of_nothing,
        Difference(
            "a placement of no vreplicas is no placement",
            "Knative counts a pod with an entry of 0 as one in use",
        ),
        repaired=without_entries_of_nothing,
        unreproducible=always,
    ),
    Rule(
        is_trimmed,
        Difference(
            "what is trimmed away no longer counts",
            "Knative places it anew, and its policies still count it on the overcommitted pod that "
            "it has left",
        ),
        seen=trimmed_still_takes_room,
        repaired=trimmed_before,
        unreproducible=always,
    ),
)
