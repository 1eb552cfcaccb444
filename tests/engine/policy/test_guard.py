"""Third parties' plugins that raise or answer wrongly: one named error, and only that vpod stands
still.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from extender.engine.placing.explain import Step
from extender.engine.placing.grow import grow_by_plugins
from extender.engine.placing.select import better_place, refusals, shrink
from extender.engine.policy.framework import MAX_SCORE, PlaceUnknown, Scope, Weighted, scope_of
from extender.engine.policy.guard import PROBLEM_CHARS_MAX, PluginFailed, guarded_filter
from extender.engine.policy.profile import KNATIVE_1_16_RULES, Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.policy.registry import BUILT_IN_PLUGINS
from extender.engine.policy.spreading import PodSpread, ZoneSpread
from extender.engine.rebalance.move_plan import Limits
from extender.engine.rebalance.moves import Advice, plan_moves
from extender.model.moves import MoveReason
from extender.model.reasons import ConflictReason
from tests.support.builders import Scene, a_node, a_vpod
from tests.support.placing import place

Answer = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Acme:
    """A third party's plugin, which answers as the test says."""

    answer: Answer
    name: ClassVar[str] = "Acme"

    def filter(self, candidate, spread):
        return self.answer(candidate, spread)

    score = deschedule = filter  # noqa: A003 - the protocols name them


@dataclass(frozen=True)
class AcmeNormalized:
    answer: Callable[[Any], Any]
    name: ClassVar[str] = "Acme"

    def score(self, candidate, _spread):
        return candidate.ordinal

    def normalize(self, scores):
        return self.answer(scores)


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Sly(str):
    pass


def raising(error: Exception) -> Answer:
    def answer(_candidate, _spread):
        raise error

    return answer


def giving(value: object) -> Answer:
    return lambda _candidate, _spread: value


def on_weight_2(candidate, spread):
    """What fails for one vpod only: plugins do not see which vpod it is."""
    return 1 // (2 - spread.weight) * 0


def profile(role: str, plugin, **fields) -> Profile:
    found = Weighted(plugin, 1) if role in {"scores", "deschedulers"} else plugin
    given: dict[str, Any] = {role: (found,), **fields}
    return Profile(name="acme", **given)


def two_pods(*own: int) -> Scene:
    scene = Scene(replicas=2).node(a_node("node-1", "z1"))
    for ordinal, count in enumerate(own or (0, 0)):
        scene.pod(ordinal, {"tenant/a": count} if count else {}, node=f"node-{ordinal}")
    return scene


def asked(role: str, plugin) -> object:
    """What the functions that plan and rebalancer call do with a profile of this plugin."""
    pool, one = two_pods(3, 1).pool, profile(role, plugin)
    if role in {"deschedulers", "deschedule_filters"}:
        if role == "deschedule_filters":
            one = replace(one, deschedulers=(Weighted(PodSpread(), 1),))
        return shrink(pool, a_vpod(), {"dispatcher-0": 3, "dispatcher-1": 1}, 1, one)
    return grow_by_plugins(pool, a_vpod(), {}, 2, pool.free_of, one)


@pytest.mark.parametrize(
    ("role", "plugin", "message"),
    [
        pytest.param(
            "filters", Acme(raising(KeyError("x"))), "filter: KeyError: 'x'", id="filter raises"
        ),
        pytest.param(
            "filters", Acme(giving(None)), "filter: None is no str", id="filter says None"
        ),
        pytest.param(
            "filters", Acme(giving(Sly(""))), "filter: Sly is no str", id="filter says a sly str"
        ),
        pytest.param(
            "scores",
            Acme(raising(ValueError("boom"))),
            "score: ValueError: boom",
            id="score raises",
        ),
        pytest.param(
            "scores", Acme(raising(PlaceUnknown("where"))), "score: PlaceUnknown", id="no place"
        ),
        pytest.param(
            "scores", Acme(raising(NoText())), "score: NoText: (no text)", id="no text either"
        ),
        pytest.param(
            "scores", Acme(giving(float("nan"))), "score: nan is no int", id="score is nan"
        ),
        pytest.param("scores", Acme(giving(True)), "score: True is no int", id="score is a bool"),
        pytest.param(
            "scores", Acme(giving(-1)), "score: -1 is no int from 0", id="score is negative"
        ),
        pytest.param(
            "scores", Acme(giving(2**64)), f"score: {2**64} is no int", id="score is too great"
        ),
        pytest.param(
            "scores",
            Acme(giving(10**5000)),
            "score: a far greater int is no int",
            id="far too great",
        ),
        pytest.param(
            "scores",
            AcmeNormalized(lambda _: 1 // 0),
            "normalize: ZeroDivision",
            id="normalize raises",
        ),
        pytest.param(
            "scores", AcmeNormalized(lambda _: [1]), "normalize: 1 scores for 2 pods", id="too few"
        ),
        pytest.param(
            "scores",
            AcmeNormalized(lambda s: [0.5 for _ in s]),
            "normalize: 0.5 is no int",
            id="fractions",
        ),
        pytest.param(
            "scores", AcmeNormalized(lambda _: None), "normalize: TypeError", id="no scores"
        ),
        pytest.param(
            "deschedulers",
            Acme(raising(OSError("net"))),
            "deschedule: OSError: net",
            id="descheduler",
        ),
        pytest.param(
            "deschedulers", Acme(giving("7")), "deschedule: '7' is no int", id="a text for a score"
        ),
        pytest.param(
            "deschedule_filters", Acme(giving(0)), "filter: 0 is no str", id="filter of descheduler"
        ),
    ],
)
def test_what_a_plugin_does_wrong_is_one_error_that_names_it(role: str, plugin, message: str):
    with pytest.raises(PluginFailed) as caught:
        asked(role, plugin)
    assert str(caught.value).startswith(f"plugin Acme failed: {message}")
    assert caught.value.plugin == "Acme"


def test_the_error_is_chained_to_what_was_raised_and_never_long():
    error = ValueError("x" * 10_000)
    with pytest.raises(PluginFailed) as caught:
        asked("scores", Acme(raising(error)))
    assert caught.value.__cause__ is error
    assert len(str(caught.value)) < PROBLEM_CHARS_MAX + 50


def test_refusals_and_better_place_raise_it_too():
    pool, broken = two_pods(3, 1).pool, profile("filters", Acme(raising(ValueError())))
    with pytest.raises(PluginFailed):
        refusals(pool, a_vpod(), {}, pool.free_of, broken)
    with pytest.raises(PluginFailed):
        better_place(pool, a_vpod(), {"dispatcher-0": 3, "dispatcher-1": 1}, broken)


def test_a_descheduler_may_not_know_the_place():
    kept = {"dispatcher-0": 3, "dispatcher-1": 1}
    unknown = profile("deschedulers", Acme(raising(PlaceUnknown("where"))))
    assert shrink(two_pods(3, 1).pool, a_vpod(), kept, 1, unknown) == {"dispatcher-1": 1}


def test_a_plugin_that_answers_well_decides():
    assert asked("scores", Acme(lambda candidate, _: candidate.ordinal)) == ({1: 2}, 0)
    assert asked("scores", AcmeNormalized(lambda scores: [MAX_SCORE - s for s in scores])) == (
        {0: 2},
        0,
    )
    assert asked("filters", Acme(lambda one, _: "" if one.ordinal else "not there")) == ({1: 2}, 0)
    assert asked("deschedulers", Acme(lambda one, _: one.ordinal)) == {"dispatcher-1": 1}


def test_our_own_plugins_are_called_directly():
    for found in BUILT_IN_PROFILES.values():
        for plugin in (
            *found.filters,
            *(item.plugin for item in (*found.scores, *found.deschedulers)),
        ):
            assert type(plugin).__module__ != "extender.engine.policy.guard"
    args = {"MaxSkew": 1, "NumPartitions": 1, "CountEmpty": True}
    for factory in BUILT_IN_PLUGINS.values():
        if factory.filter is not None:
            plugin = factory.filter.make(args)
            assert guarded_filter(plugin) is plugin


def test_a_guard_keeps_name_scope_and_equality_and_is_put_on_once():
    class Zonal(Acme):
        scope: ClassVar[Scope] = Scope.ZONE

    answer = giving("")
    first = profile("filters", Zonal(answer))
    (guard,) = first.filters
    assert (guard.name, scope_of(guard)) == ("Acme", Scope.ZONE)
    assert first == profile("filters", Zonal(answer)) != profile("filters", Zonal(giving("no")))
    assert replace(first, name="acme").filters[0] is guard
    assert scope_of(profile("scores", AcmeNormalized(list)).scores[0].plugin) is Scope.POD


# -- placing and rebalancing -----------------------------------------------------------------------


def broken_for_weight_2(scene: Scene) -> Scene:
    scene.pool.set_profile(profile("scores", Acme(on_weight_2)))
    return scene


def test_a_vpod_stands_still_where_a_plugin_fails():
    scene = broken_for_weight_2(two_pods()).vpod("a", 4, {0: 2}, weight=2)
    decision = place(scene.pool, scene.pool.vpods["tenant/a"])
    assert (dict(decision.target), decision.pending) == ({"dispatcher-0": 2}, 2)
    assert decision.explanation.reason is ConflictReason.PLUGIN_FAILED
    assert decision.explanation.outcome() == (
        "2 of 4 vreplicas are not placed (PluginFailed): plugin Acme failed: "
        "score: ZeroDivisionError: integer division or modulo by zero"
    )
    assert decision.moves == ()


def test_no_other_vpod_suffers():
    scene = broken_for_weight_2(two_pods()).vpod("a", 4, weight=2).vpod("b", 4)
    assert place(scene.pool, scene.pool.vpods["tenant/b"]).pending == 0


def test_what_is_drained_stays_where_it_is_until_the_plugin_answers():
    scene = (
        broken_for_weight_2(two_pods())
        .vpod("a", 2, {0: 2}, weight=2)
        .pod(0, node="node-0", unschedulable=True)
    )
    decision = place(scene.pool, scene.pool.vpods["tenant/a"])
    assert (dict(decision.target), decision.pending) == ({"dispatcher-0": 2}, 0)
    assert decision.explanation.outcome().startswith(
        "all 2 vreplicas are placed; plugin Acme failed: score"
    )


def test_fewer_go_from_the_highest_ordinal_down_where_the_descheduler_fails():
    scene = two_pods().vpod("a", 3, {0: 3, 1: 3})
    scene.pool.set_profile(profile("deschedulers", Acme(raising(ValueError("boom")))))
    decision = place(scene.pool, scene.pool.vpods["tenant/a"])
    assert (dict(decision.target), decision.pending) == ({"dispatcher-0": 3}, 0)
    assert [(s.step, s.vreplicas) for s in decision.explanation.steps] == [(Step.REMOVED, 3)]


def test_placing_afresh_stands_still_too():
    scene = two_pods().vpod("a", 4, {0: 2})
    scene.pool.set_profile(
        profile("filters", Acme(raising(ValueError("boom"))), rules=KNATIVE_1_16_RULES)
    )
    decision = place(scene.pool, scene.pool.vpods["tenant/a"])
    assert (dict(decision.target), decision.pending) == ({"dispatcher-0": 2}, 2)
    assert decision.explanation.reason is ConflictReason.PLUGIN_FAILED


def test_policy_moves_skip_the_vpod_and_go_on():
    scene = two_pods()
    scene.pod(0, {"tenant/b": 4}, node="node-0").vpod("b", 4, {0: 4})
    scene.vpod("a", 4, {0: 4}, weight=2)
    scores = (Weighted(Acme(on_weight_2), 1), Weighted(ZoneSpread(), 1))
    scene.pool.set_profile(Profile(name="acme", scores=scores))
    moves = plan_moves(scene.pool, Limits(budget=10), Advice(vpods=("tenant/a", "tenant/b")))
    assert {(move.vpod, move.vreplicas) for move in moves} == {("tenant/b", 2)}


def test_a_drain_and_compaction_leave_the_vpod_and_go_on():
    scene = broken_for_weight_2(Scene(replicas=3).pods(0, 1, 2))
    scene.vpod("a", 2, {1: 1, 2: 1}, weight=2).vpod("b", 2, {1: 2}).vpod("c", 1, {2: 1})
    scene.pod(1, unschedulable=True)
    scene.pool.set_closed(0b100)
    moves = plan_moves(scene.pool, Limits(budget=10))
    assert [(move.vpod, move.from_pod, move.reason) for move in moves] == [
        ("tenant/b", "dispatcher-1", MoveReason.DRAIN)
    ], "a pod of which not all can go is not begun"
