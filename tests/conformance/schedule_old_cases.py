"""schedule_v_old.json and schedule_v_old_observed.json: Schedule(vpod) of Knative up to 1.16, with
policies or MAXFILLUP.

Each call is checked by itself, from what Knative had reserved before it, and placed by the profile
that offers the old behaviour: ``knative-maxfillup``, or the case's policies as their ConfigMaps are
imported, with the rules of that version (``KNATIVE_1_16_RULES``). Where the answer is another one,
a named rule's condition must hold on the input, and it excuses what it is about, and nothing
besides: placed once more

- *as Knative takes it*, in the rule's view of the call or in that of all rules that hold, the
  answer must be Knative's;
- *repaired*, where no view has all of a rule's defect (``unreproducible``), the answer must be the
  one that we give: what the rule is about plays no part in ours.

In any case ours must be sound: all placed that finds room, no pod overcommitted, nothing moved for
nothing.

A status of a case is never written again, so what a call has answered is only reserved in the calls
after it. The state before the calls is compared as far as Schedule can see it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from extender.engine.placing.plan import Decision
from extender.engine.policy.profile import Profile
from extender.model.errors import InvalidObject
from extender.model.ledger import Share
from tests.conformance.policies import Policy, profile_of
from tests.conformance.result import Case, Check, Difference
from tests.conformance.schedule_cases import first_of
from tests.conformance.schedule_old_call import Call
from tests.conformance.schedule_old_rules import REFUSED, RULES, TIES, Rule, has_ties
from tests.conformance.schedule_old_sound import unsound
from tests.conformance.schedule_old_views import Viewed
from tests.conformance.state_cases import (
    UNKNOWN_NODE,
    World,
    check_state,
    has_unknown_node,
    summed,
    vpod_key,
)
from tests.support.placing import place

NOT_SEEN = {"lastOrdinal", "schedPolicy", "deschedPolicy"}
"""Fields of Knative's state that play no part in placing."""


@dataclass(frozen=True)
class Script:
    """The calls of one case, from the state ``before`` them (None where it is not recorded)."""

    world: World
    before: Mapping[str, Any] | None
    policy: Policy
    steps: list[dict[str, Any]]

    @classmethod
    def of(
        cls,
        case: Case,
        vpods: list[Mapping[str, Any]],
        before: Mapping[str, Any] | None,
        steps: list[dict[str, Any]],
    ) -> "Script":
        """The script of a case with these vpods."""
        policy = Policy(
            case["scheduler_policy_type"], case["scheduler_policy"], case["descheduler_policy"]
        )
        return cls(_world(case, vpods), before, policy, steps)

    def calls(self) -> Iterator[Call]:
        """Each call in the world that the ones before it have left."""
        world = self.world
        for step in self.steps:
            placements = [item for item in step["placements"] or [] if item["vreplicas"]]
            yield Call(world, step["key"], self.policy, placements, step["left"])
            world = replace(world, decided=step.get("reserved_after") or {})


def check_table(case: Case) -> str | Difference | None:
    """One case of schedule_v_old.json: one call, or what reserving leaves behind."""
    if case["kind"] == "reserve_placements":
        return check_reserve(case)
    if case["kind"] != "schedule":
        return f"unknown kind {case['kind']!r}"
    detail = case["expected"]["error_detail"] or {}
    step = {
        "key": vpod_key(case["vpod"]),
        "placements": case["expected"]["placements"],
        "left": detail.get("left", 0),
    }
    before = (case.get("observed") or {}).get("state_before")
    return check_script(Script.of(case, [case["vpod"], *case["other_vpods"]], before, [step]))


def check_sequence(case: Case) -> str | Difference | None:
    """One case of schedule_v_old_observed.json: calls one after the other, or a state that cannot
    be built.
    """
    if case["kind"] not in {"schedule_sequence", "schedule"}:
        return f"unknown kind {case['kind']!r}"
    expected = case["expected"]
    if "state_error" in expected:
        unknown = has_unknown_node(_world(case, case["vpods"]))
        return UNKNOWN_NODE if unknown else f"expected the error {expected['state_error']}"
    steps = expected["steps"]
    if [step["key"] for step in steps] != case["schedule"]:
        return f"the steps are not those of the schedule {case['schedule']}"
    return check_script(Script.of(case, case["vpods"], expected["state"], steps))


def check_reserve(case: Case) -> str | Difference | None:
    """Reservations on top of others: a pod that is not named keeps what it had; an empty answer
    ends them all.
    """
    key = vpod_key(case["vpod"])
    world = World("test-ns", "statefulset-name", 0, 10, 0, [], [], {key: 0}, {key: {}})
    pool = world.build()
    for placements in (case["vpod"]["placements"], case["placements"]):
        shares = {item["podName"]: Share(item["vreplicas"]) for item in placements or []}
        if shares:
            pool.reserve("case", key, shares, expires_at=30.0)
        else:
            pool.release("case", key)
    claims = pool.claims_of(key)
    found = {
        name: claim.reserved.vreplicas
        for name, claim in claims.items()
        if claim.reserved is not None
    }
    expected = case["expected"]["reserved"] or {}
    return None if found == expected else f"expected {expected}, found {found}"


FILES: dict[str, Check] = {
    "schedule_v_old.json": check_table,
    "schedule_v_old_observed.json": check_sequence,
}


def _world(case: Case, vpods: list[Mapping[str, Any]]) -> World:
    return replace(
        World.of(case, vpods),
        status={vpod_key(raw): summed(raw, keep_zeros=True) for raw in vpods},
        decided=case["reserved"] or {},
        nodes_are_listed=True,
        policy_type=case["scheduler_policy_type"],
    )


def check_script(script: Script) -> str | Difference | None:
    """With the policies as they are or, where they are refused, without the names that Knative
    ignores.
    """
    try:
        return _check_calls(script, profile_of(script.policy))
    except InvalidObject as error:
        if not script.policy.is_unreadable:
            return f"the policy is refused: {error}"
    try:
        outcome = _check_calls(script, profile_of(script.policy, ignore_unknown=True))
    except InvalidObject:
        return REFUSED
    return replace(REFUSED, offered="ignoreUnknown") if outcome is None else outcome


def _check_calls(script: Script, profile: Profile) -> str | Difference | None:
    outcomes = [_check_state(script.world, script.before)] if script.before is not None else []
    for number, call in enumerate(script.calls()):
        outcome = check_call(call, profile)
        outcomes.append(
            f"call {number}, {call.key}: {outcome}" if isinstance(outcome, str) else outcome
        )
    return first_of(outcomes)


def _check_state(world: World, before: Mapping[str, Any]) -> str | Difference | None:
    """The fields of a state that Schedule looks at. Knative's free list is what is placed leaves,
    also where it shrinks.
    """
    pods = world.build().by_ordinal
    free = [
        world.capacity - (pods[ordinal].decided if ordinal in pods else 0)
        for ordinal in range(len(before["freeCap"]))
    ]
    unseen = NOT_SEEN | ({"freeCap"} if free == before["freeCap"] else set())
    return check_state(world, {name: value for name, value in before.items() if name not in unseen})


def check_call(call: Call, profile: Profile) -> str | Difference | None:
    """One decision."""
    decision = _decide(call, profile)
    if _agrees(call, decision):
        return None
    found = (
        f"expected {call.placements}, left {call.left}; found {dict(decision.target)}, left "
        f"{decision.pending}"
    )
    holding = [rule for rule in RULES if rule.holds(call)]
    excused = _excused(call, profile, decision, holding)
    if excused is None:
        names = ", ".join(rule.difference.rule for rule in holding)
        return f"{found}; " + (
            f"also as Knative takes it, by {names}" if holding else "no rule holds"
        )
    why = unsound(call, decision)
    return excused if why is None else f"{found}, where {why}"


def _excused(
    call: Call, profile: Profile, decision: Decision, holding: list[Rule]
) -> Difference | None:
    """The difference that ours shows, and nothing besides."""
    for rule in holding:
        if _agrees(call, _decide(*rule.seen(call, profile))):
            return rule.difference
    if holding and _agrees(call, _decide(*_as_knative_takes_it(call, profile))):
        return holding[0].difference
    for rule in holding:
        if rule.unreproducible(call) and _same(
            call, decision, _decide(*rule.repaired(call, profile))
        ):
            return rule.difference
    totals = sum(item["vreplicas"] for item in call.placements), call.left
    return TIES if has_ties(call) and totals == (decision.scheduled, decision.pending) else None


def _same(call: Call, decision: Decision, repaired: Decision) -> bool:
    """Whether both say the same; where not all find room, policies leave as it is what a repaired
    call may not have.
    """
    if decision.pending != repaired.pending:
        return False
    return dict(decision.target) == dict(repaired.target) or (
        call.is_placed_afresh and decision.pending > 0
    )


def _as_knative_takes_it(call: Call, profile: Profile) -> Viewed:
    """By all rules together; what one view changes, the next one's condition sees."""
    for rule in reversed(RULES):
        if rule.holds(call):
            call, profile = rule.seen(call, profile)
    return call, profile


def _decide(call: Call, profile: Profile) -> Decision:
    pool = call.world.build()
    pool.set_profile(profile)
    return place(pool, pool.vpods[call.key])


def _agrees(call: Call, decision: Decision) -> bool:
    found = [{"podName": name, "vreplicas": count} for name, count in decision.target.items()]
    return (found, decision.pending) == (call.placements, call.left)
