"""schedule_v_new.json and schedule_v_new_observed.json: Knative's Schedule(vpod), decision by
decision.

Each call is checked by itself, from the reservations that Knative had before it. It is placed up to
three times:

- *by default*: the default rules, in the world as the case has it, where a vpod that was scheduled
  earlier in the case has published its answer. If that is Knative's answer, the case agrees.
- *with the old behaviour*: profile ``knative`` in the same world. If that is Knative's answer, the
  case agrees too, and the report says by which rule the default differs.
- *settled*: profile ``knative``, where every status says what is reserved. If both differ above, a
  named rule's condition must hold on the input, and this last answer must be Knative's: so a rule
  excuses what it is about, and nothing besides. Only where Knative's answer is a defect that we do
  not offer (``unreproducible``) need it not agree.

The state before the calls is compared as far as Schedule can see it: an entry of no vreplicas is
none, and an ordinal behind the end of the free list has the whole capacity. That "no placements" is
sometimes null and sometimes [] in Go has no counterpart here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from extender.engine.policy.profile import DEFAULT_RULES, KNATIVE_RULES, Profile, Rules
from extender.model.objects import ordinal_of
from tests.conformance.result import Case, Check, Difference
from tests.conformance.state_cases import (
    Placements,
    World,
    check_state,
    summed,
    vpod_key,
)
from tests.support.placing import place


@dataclass(frozen=True)
class Call:
    """One Schedule(``key``). ``world`` is settled; ``status`` is what the vpods really publish."""

    world: World
    key: str
    status: Placements
    informer_replicas: int
    placements: list[dict[str, Any]]
    """Knative's answer."""
    left: int
    zero_entries: frozenset[str] = frozenset()
    """Pods for which the vpod has reserved 0 vreplicas."""

    @property
    def reserved(self) -> Placements:
        """Knative's reservations before the call."""
        return self.world.reserved

    @property
    def own(self) -> dict[str, int]:
        """What the vpod has reserved."""
        return self.reserved.get(self.key, {})


def check_table(case: Case) -> str | Difference | None:
    """One case of schedule_v_new.json: one call, and the state before it."""
    if "kind" in case:
        return f"unknown kind {case['kind']!r}"
    vpods = [case["vpod"], *case["other_vpods"]]
    detail = case["expected"]["error_detail"] or {}
    step = {
        "key": vpod_key(case["vpod"]),
        "placements": case["expected"]["placements"],
        "left": detail.get("left", 0),
    }
    reserved = case["reserved"] if case["reserved"] is not None else case.get("effective_reserved")
    calls = _calls(case, vpods, reserved, [step])
    before = (case.get("observed") or {}).get("state_before")
    return _verdict(case, vpods, before, calls)


def check_sequence(case: Case) -> str | Difference | None:
    """One case of schedule_v_new_observed.json: calls one after the other, and the state before
    them.
    """
    if case["kind"] != "schedule_sequence":
        return f"unknown kind {case['kind']!r}"
    expected = case["expected"]
    steps = expected["steps"]
    if [step["key"] for step in steps] != case["schedule"]:
        return f"the steps are not those of the schedule {case['schedule']}"
    before = {**expected["state"], "freeCapacity": expected["free_capacity"]}
    return _verdict(
        case, case["vpods"], before, _calls(case, case["vpods"], case["reserved"], steps)
    )


FILES: dict[str, Check] = {
    "schedule_v_new.json": check_table,
    "schedule_v_new_observed.json": check_sequence,
}


def _verdict(
    case: Case,
    vpods: list[Mapping[str, Any]],
    before: Mapping[str, Any] | None,
    calls: Iterator[Call],
) -> str | Difference | None:
    outcomes = (
        [check_state(World.of(case, vpods), before, only_visible=True)]
        if before is not None
        else []
    )
    for number, call in enumerate(calls):
        outcome = check_call(call)
        outcomes.append(
            f"call {number}, {call.key}: {outcome}" if isinstance(outcome, str) else outcome
        )
    return first_of(outcomes)


def _calls(
    case: Case,
    vpods: list[Mapping[str, Any]],
    reserved: Placements | None,
    steps: list[dict[str, Any]],
) -> Iterator[Call]:
    base = World.of(case, vpods)
    status = {vpod_key(raw): summed(raw) for raw in vpods}
    # No reservations given: those that Knative takes from the statuses when it becomes leader.
    raw = (
        {vpod_key(item): summed(item, keep_zeros=True) for item in vpods}
        if reserved is None
        else reserved
    )
    replicas = case.get("informer_replicas")
    for step in steps:
        now = _without_zeros(raw)
        settled = {key: now.get(key, {}) for key in base.vreplicas}
        yield Call(
            world=replace(base, status=settled, reserved=now),
            key=step["key"],
            status=status,
            informer_replicas=case["replicas"] if replicas is None else replicas,
            placements=step["placements"] or [],
            left=step["left"],
            zero_entries=frozenset(
                pod for pod, count in raw.get(step["key"], {}).items() if not count
            ),
        )
        answer = {item["podName"]: item["vreplicas"] for item in step["placements"] or []}
        status = {**status, step["key"]: answer}
        raw = step.get("reserved_after", {**raw, step["key"]: answer})


def _without_zeros(placements: Placements) -> Placements:
    return {
        key: {pod: count for pod, count in counts.items() if count}
        for key, counts in placements.items()
    }


def check_call(call: Call) -> str | Difference | None:
    """One decision."""
    world = replace(call.world, status=call.status)
    ours = _compare(call, world, DEFAULT_RULES)
    if ours is None:
        return None
    holding = [rule for rule in RULES if rule.holds(call)]
    switched = _compare(call, world, KNATIVE_RULES)
    knatives = _compare(call, call.world, KNATIVE_RULES)
    if switched is None and holding:
        return replace(holding[0].difference, offered="profile knative")
    holding = [rule for rule in holding if not rule.offered]
    excused = next((rule for rule in holding if rule.unreproducible or knatives is None), None)
    if excused is not None:
        return excused.difference
    names = ", ".join(rule.difference.rule for rule in holding) or "any rule"
    return f"{ours}; and as Knative does it, without {names}: {knatives or 'it agrees'}"


def first_of(outcomes: Sequence[str | Difference | None]) -> str | Difference | None:
    """The first failure; else the first named difference, one that no profile switches off first;
    else agreement.
    """
    failures = [outcome for outcome in outcomes if isinstance(outcome, str)]
    differences = [outcome for outcome in outcomes if isinstance(outcome, Difference)]
    differences.sort(key=lambda difference: bool(difference.offered))
    outcome: str | Difference | None = next(iter(failures), None) or next(iter(differences), None)
    return outcome


def _compare(call: Call, world: World, rules: Rules) -> str | None:
    pool = world.build()
    pool.set_profile(Profile(name="case", rules=rules))
    decision = place(pool, pool.vpods[call.key])
    found = [{"podName": name, "vreplicas": count} for name, count in decision.target.items()]
    if (found, decision.pending) == (call.placements, call.left):
        return None
    return f"expected {call.placements}, left {call.left}; found {found}, left {decision.pending}"


# -- where we differ on purpose: conditions on a call's input --------------------------------------


@dataclass(frozen=True)
class Rule:
    """A named difference.

    ``offered``: profile ``knative`` does it as Knative. ``unreproducible``: Knative's answer cannot
    be had at all.
    """

    holds: Callable[[Call], bool]
    difference: Difference
    offered: bool = False
    unreproducible: bool = False


def stale_informer(call: Call) -> bool:
    """Whether the watch of the StatefulSet has fewer replicas than the scale; more do no harm."""
    return call.informer_replicas < call.world.replicas


def status_differs(call: Call) -> bool:
    """Whether some vpod publishes something else than is reserved for it."""
    return any(
        call.status.get(key, {}) != call.reserved.get(key, {}) for key in call.world.vreplicas
    )


def wants_nothing(call: Call) -> bool:
    """Whether a vpod of 0 vreplicas is scheduled with minReplicas."""
    return call.world.vreplicas[call.key] == 0 and call.world.min_replicas > 0


def stands_on_annotated(call: Call) -> bool:
    """Whether the vpod has vreplicas on a pod that is annotated unschedulable."""
    annotated = {pod["name"] for pod in call.world.pods if call.world.is_annotated(pod)}
    return any(_is_member(call, name) and name in annotated for name in call.own)


def stands_on_unavailable(call: Call) -> bool:
    """Whether the vpod has vreplicas on a pod of the StatefulSet that does not exist now, or is on
    no node.
    """
    on_node = {pod["name"] for pod in call.world.pods if pod["node"]}
    return any(_is_member(call, name) and name not in on_node for name in call.own)


def stands_on_nothing(call: Call) -> bool:
    """Whether a pod of the StatefulSet is reserved for the vpod with 0 vreplicas."""
    return any(_is_member(call, name) for name in call.zero_entries)


def _is_member(call: Call, pod_name: str) -> bool:
    ordinal = ordinal_of(pod_name)
    return ordinal is not None and ordinal < call.world.replicas


RULES = (
    # The more special ones first: the first that holds gives its name.
    Rule(
        wants_nothing,
        Difference("a vpod of 0 vreplicas gets none", "Knative gives it minReplicas vreplicas"),
        offered=True,
    ),
    Rule(
        stands_on_unavailable,
        Difference(
            "placements outlive a restart of their pod",
            "Knative drops what is on a pod that is pending or gone for a moment, so every restart "
            "moves work",
        ),
        offered=True,
    ),
    Rule(
        stands_on_annotated,
        Difference(
            "draining waits for room",
            "Knative drops what is on an annotated pod at once, also where nothing else can take "
            "it",
        ),
        offered=True,
    ),
    Rule(
        status_differs,
        Difference(
            "the published status counts",
            "Knative never reads it, so a restart places afresh and work moves; we keep what is "
            "published (I4)",
        ),
    ),
    Rule(
        stands_on_nothing,
        Difference(
            "a placement of no vreplicas is no placement",
            "Knative offers such pods first, in random order when there are several",
        ),
        unreproducible=True,
    ),
    Rule(
        stale_informer,
        Difference(
            "one count of replicas",
            "Knative mixes the scale and the watch, and gives ordinal 0 what the missing pods "
            "should get",
        ),
        unreproducible=True,
    ),
)
