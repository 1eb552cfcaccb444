"""Profiles from configuration: what is read, and what is refused with which words."""

import pytest

from extender.engine.policy.availability import AvailabilityZonePriority
from extender.engine.policy.even_pod_spread import EvenPodSpread
from extender.engine.policy.framework import Weighted
from extender.engine.policy.profile import DEFAULT_RULES, KNATIVE_RULES, Profile, Rules, Ties
from extender.engine.policy.profile_document import profile_from
from extender.engine.policy.profiles import BUILT_IN_PROFILES, HA_PROFILE
from extender.engine.policy.registry import BUILT_IN_PLUGINS, Maker, PluginFactory, with_plugins
from extender.engine.policy.resources import NoMaxResourceCount
from extender.engine.policy.spreading import NodeSpread, PodSpread, ZoneSpread
from extender.model.errors import InvalidObject


def test_a_name_alone_is_the_default_profile():
    assert profile_from({"name": "default"}) == BUILT_IN_PROFILES["default"]


def test_the_built_in_ha_can_be_written_down():
    three = [
        {"name": "ZoneSpread", "weight": 100},
        {"name": "NodeSpread", "weight": 10},
        {"name": "PodSpread"},
    ]
    document = {
        "name": "ha",
        "filters": [{"name": "ZoneSpread", "args": {"MaxSkew": 1}}],
        "scores": three,
        "deschedulers": three,
        "ties": "MostFreeZone",
    }
    assert profile_from(document) == HA_PROFILE


def test_all_parts_are_read():
    document = {
        "name": "mine",
        "ties": "RoundRobin",
        "filters": [
            {"name": "NoMaxResourceCount", "args": {"NumPartitions": 4}},
            {"name": "EvenPodSpread", "args": '{"maxskew": 2}'},
            {"name": "NodeSpread", "args": {"MaxSkew": 2, "CountEmpty": True}},
            {"name": "PodSpread"},
        ],
        "scores": [
            {"name": "AvailabilityZonePriority", "weight": 3},
            {"name": "LowestOrdinalPriority", "weight": 0},
        ],
        "deschedulers": [{"name": "ZoneSpread", "weight": 2}],
        "descheduleFilters": [{"name": "PodSpread", "args": {"MaxSkew": 3}}],
        "rules": {"zeroMeansNone": False},
    }
    assert profile_from(document) == Profile(
        name="mine",
        ties=Ties.ROUND_ROBIN,
        filters=(
            NoMaxResourceCount(4),
            EvenPodSpread(2),
            NodeSpread(2, count_empty=True),
            PodSpread(1),
        ),
        scores=(Weighted(AvailabilityZonePriority(), 3),),
        deschedulers=(Weighted(ZoneSpread(), 2),),
        deschedule_filters=(PodSpread(3),),
        rules=Rules(zero_means_none=False),
    )


@pytest.mark.parametrize(
    ("part", "message"),
    [
        pytest.param(
            {"name": ""}, "profile: name: must be a text that is not empty, not ''", id="no name"
        ),
        pytest.param(
            {"filter": []}, "filter: is not known (known: name, ties, filters,", id="unknown field"
        ),
        pytest.param(
            {"filters": "ZoneSpread"}, "filters: must be a list of at most 50 plugins", id="no list"
        ),
        pytest.param({"filters": ["x"]}, "filters[0]: must be an object, not 'x'", id="no object"),
        pytest.param(
            {"filters": [{"name": "EvenPodsSpreadPriority"}]},
            "filters[0].name: 'EvenPodsSpreadPriority' is not known (known: EvenPodSpread, "
            "NoMaxResourceCount,",
            id="unknown plugin",
        ),
        pytest.param(
            {"filters": [{"name": "LowestOrdinalPriority"}]},
            "filters[0].name: 'LowestOrdinalPriority' is no filter (known: EvenPodSpread,",
            id="a score as filter",
        ),
        pytest.param(
            {"scores": [{"name": "RemoveWithHighestOrdinalPriority"}]},
            "is no score",
            id="a descheduler as score",
        ),
        pytest.param(
            {"deschedulers": [{"name": "EvenPodSpread"}]},
            "is no descheduler",
            id="a score as descheduler",
        ),
        pytest.param(
            {"filters": [{"name": 5}]}, "filters[0].name: 5 is not known", id="name is no text"
        ),
        pytest.param(
            {"scores": [{"name": "ZoneSpread"}, {"name": "ZoneSpread", "weight": 2}]},
            "scores[1].name: ZoneSpread is listed twice",
            id="listed twice",
        ),
        pytest.param(
            {"filters": [{"name": "PodSpread", "weight": 1}]},
            "filters[0].weight: is not known (known: name, args)",
            id="a filter has no weight",
        ),
        pytest.param(
            {"scores": [{"name": "PodSpread", "weight": 101}]},
            "scores[0].weight: must be an integer from 0 to 100, not 101",
            id="weight too large",
        ),
        pytest.param(
            {"scores": [{"name": "PodSpread", "weight": True}]},
            "scores[0].weight",
            id="weight is true",
        ),
        pytest.param(
            {"filters": [{"name": "EvenPodSpread"}]},
            "filters[0].args.MaxSkew: is required",
            id="no argument",
        ),
        pytest.param(
            {"filters": [{"name": "EvenPodSpread", "args": {"MaxSkewness": 1}}]},
            "filters[0].args.MaxSkewness: is not known (known: MaxSkew)",
            id="unknown argument",
        ),
        pytest.param(
            {"filters": [{"name": "PodFitsResources", "args": {"MaxSkew": 1}}]},
            "filters[0].args.MaxSkew: is not known (known: none)",
            id="argument of a plugin that takes none",
        ),
        pytest.param(
            {"filters": [{"name": "ZoneSpread", "args": {"MaxSkew": 0}}]},
            "filters[0].args.MaxSkew: must be an integer from 1 to 2147483647, not 0",
            id="argument too small",
        ),
        pytest.param(
            {"filters": [{"name": "ZoneSpread", "args": {"CountEmpty": 1}}]},
            "filters[0].args.CountEmpty: must be true or false, not 1",
            id="argument of another type",
        ),
        pytest.param(
            {"filters": [{"name": "ZoneSpread", "args": 5}]},
            "filters[0].args: must be",
            id="args 5",
        ),
        pytest.param(
            {"ties": "Random"},
            "ties: must be one of LowestOrdinal, MostFreeZone, RoundRobin, not 'Random'",
            id="ties",
        ),
        pytest.param(
            {"rules": {"keep": True}},
            "rules.keep: is not known (known: keepOnUnavailable,",
            id="rule",
        ),
        pytest.param(
            {"rules": {"zeroMeansNone": 1}}, "rules.zeroMeansNone: must be true or", id="rule is 1"
        ),
        pytest.param({"rules": []}, "rules: must be an object", id="rules is a list"),
    ],
)
def test_what_is_wrong_is_named(part, message: str):
    with pytest.raises(InvalidObject) as caught:
        profile_from({"name": "mine", **part})
    assert message in str(caught.value)
    assert str(caught.value).startswith("profile")


def test_a_profile_with_the_rules_of_knative_is_written_with_every_rule_off():
    off = dict.fromkeys(
        ("keepOnUnavailable", "drainWaitsForRoom", "zeroMeansNone", "scaleByNeed"), False
    )
    got = profile_from({"name": "x", "rules": off}).rules
    named = (
        got.keep_on_unavailable,
        got.drain_waits_for_room,
        got.zero_means_none,
        got.scale_by_need,
    )
    assert named == (False,) * 4
    assert KNATIVE_RULES != DEFAULT_RULES


@pytest.mark.parametrize(
    ("name", "skew"),
    [("default", None), ("pack", None), ("spread", None), ("ha", 1), ("knative", None)],
)
def test_only_a_hard_zone_rule_has_a_skew(name: str, skew: int | None):
    assert BUILT_IN_PROFILES[name].hard_zone_skew == skew
    assert BUILT_IN_PROFILES[name].has_plugins is (name not in ("default", "knative"))


def test_the_tightest_hard_zone_rule_counts():
    profile = Profile(name="x", filters=(ZoneSpread(3), NodeSpread(1), ZoneSpread(2)))
    assert profile.hard_zone_skew == 2


MINE = PluginFactory(name="Mine", filter=Maker(lambda _: PodSpread(7)))


def test_a_third_partys_plugin_is_known_by_its_name():
    profile = profile_from(
        {"name": "x", "filters": [{"name": "Mine"}]}, with_plugins({"Mine": MINE})
    )
    assert profile.filters == (PodSpread(7),)


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ({"ZoneSpread": MINE}, "plugin ZoneSpread: name: is taken"),
        ({"Other": MINE}, "plugin Other: name: is registered as 'Mine'"),
        ({"Mine": PluginFactory(name="Mine")}, "plugin Mine: is neither a filter nor"),
    ],
)
def test_a_third_partys_plugin_that_does_not_fit_is_refused(added, message: str):
    with pytest.raises(InvalidObject) as caught:
        with_plugins(added)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", sorted(BUILT_IN_PLUGINS))
def test_every_plugin_says_the_name_that_it_is_known_by(name: str):
    factory = BUILT_IN_PLUGINS[name]
    for maker in (factory.filter, factory.score, factory.deschedule):
        if maker is not None:
            arguments = {key: one.kind(one.default or 1) for key, one in maker.signature.items()}
            assert maker.make(arguments).name == name
