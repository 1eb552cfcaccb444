"""What holds of our answer to a call whatever Knative's is: nothing lost, nothing overcommitted,
nothing moved for nothing.
"""

from collections.abc import Iterator, Mapping

from extender.engine.placing.plan import Decision
from tests.conformance.schedule_old_call import Call


def unsound(call: Call, decision: Decision) -> str | None:
    """What does not hold of ``decision``; None if all does."""
    if call.is_placed_afresh and decision.pending:
        return ", ".join(_failed_attempt(call, decision)) or None
    return ", ".join(_problems(call, decision.target, decision.pending)) or None


def _problems(call: Call, target: Mapping[str, int], left: int) -> Iterator[str]:
    if (total := sum(target.values()) + left) != call.wanted:
        yield f"{total} are placed or left of {call.wanted}"
    for name, count in target.items():
        if name not in call.schedulable:
            yield f"{name} takes no work"
        elif count > max(call.room[name], call.kept.get(name, 0)):
            yield f"{name} has room for {call.room[name]}, not {count}"
    plain = call.policy.scheduler is None or call.policy.predicates <= {"PodFitsResources"}
    if left and plain and (free := _free(call, target)):
        yield f"{left} are left and {free} slots are free"
    if call.is_placed_afresh:
        return
    for name, count in call.kept.items():
        if call.wants_fewer and target.get(name, 0) > count:
            yield f"{name} gets more, and fewer are wanted"
        if not call.wants_fewer and target.get(name, 0) < count:
            yield f"{name} loses {count - target.get(name, 0)} of {count}"


def _failed_attempt(call: Call, decision: Decision) -> Iterator[str]:
    """Where not all find room, policies change nothing."""
    if dict(decision.target) != {name: count for name, count in call.published.items() if count}:
        yield f"what is published changes, and {decision.pending} are left"
    if call.policy.predicates <= {"PodFitsResources"}:
        room = sum(call.room.values())
        if decision.pending != call.wanted - room:
            yield f"{decision.pending} of {call.wanted} are left, and there is room for {room}"


def _free(call: Call, target: Mapping[str, int]) -> int:
    """Free slots; under MAXFILLUP a pod that the vpod's own reservation has filled is full, as in
    Knative.
    """
    full = {
        name
        for name, room in call.room.items()
        if call.policy.fills_up and room <= call.own.get(name, 0)
    }
    return sum(
        max(0, room - target.get(name, 0)) for name, room in call.room.items() if name not in full
    )
