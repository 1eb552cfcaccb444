"""spec.sources as it is read, whose an object is, and which ledger keys only their callers may
release.
"""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from extender.model.decode import pool_from
from extender.model.foreign_kinds import (
    PRESETS,
    SOURCES_MAX,
    Claimant,
    is_caller_kept,
    owner_of,
    source_of,
    sources_from,
)
from extender.model.objects import LabelSelector, Source
from tests.support.builders import NS, a_pool

GROUP = PRESETS["knative-consumergroup"]
KAFKA = PRESETS["knative-kafkasource"]
PLACE = {"group": "x.dev", "version": "v1", "resource": "things", "kind": "Thing"}
PATHS = {"vreplicas": "spec.n", "placements": "status.placements"}


class TestReading:
    def test_a_preset_with_what_may_be_said_beside_it(self):
        (source,), problems = sources_from(
            [
                {
                    "preset": "knative-kafkasource",
                    "writeStatus": False,
                    "labelSelector": {"matchLabels": {"a": "b"}},
                }
            ]
        )
        assert problems == ()
        assert (source.versions, source.paths, source.write_status) == (
            ("v1", "v1beta1"),
            replace(KAFKA.paths, conditions=()),
            False,
        )
        assert source.selector.matches({"a": "b"})
        assert not source.selector.matches({})

    def test_a_kind_by_its_place_and_paths(self):
        paths = {
            **PATHS,
            "podName": "pod",
            "count": "n",
            "vreplicasMax": "status.max",
            "slotsPerVReplica": "spec.weight.slots",
            "perVReplica": "spec.weight.amounts",
            "scheduledVReplicas": "status.n",
            "conditions": "status.conditions",
        }
        (source,), problems = sources_from([{**PLACE, "paths": paths}])
        assert problems == ()
        assert (source.key, source.versions, source.resource) == ("thing.x.dev", ("v1",), "things")
        assert source.paths.vreplicas == ("spec", "n")
        assert (source.paths.pod_name, source.paths.count) == ("pod", "n")
        assert source.paths.vreplicas_max == ("status", "max")
        assert source.paths.slots_per_vreplica == ("spec", "weight", "slots")
        assert source.paths.per_vreplica == ("spec", "weight", "amounts")
        assert source.paths.scheduled == ("status", "n")
        assert source.paths.conditions == ("status", "conditions")
        assert source.paths.vreplicas_default is None

    def test_a_kind_whose_declaration_names_no_place_for_conditions_gets_none(self):
        (source,), problems = sources_from([{**PLACE, "paths": PATHS}])
        assert (source.paths.conditions, problems) == ((), ())

    def test_where_others_write_the_status_they_write_the_conditions_too(self):
        paths = {**PATHS, "conditions": "status.conditions"}
        sources, problems = sources_from(
            [
                {**PLACE, "paths": paths, "writeStatus": False},
                {"preset": "knative-consumergroup", "writeStatus": False},
            ]
        )
        assert [source.paths.conditions for source in sources] == [(), ()]
        assert problems == ()

    @pytest.mark.parametrize(
        ("entry", "problem"),
        [
            pytest.param(3, "spec.sources[0] must be a mapping", id="not a mapping"),
            pytest.param(
                {"preset": "kafka"}, ".preset 'kafka' is not known; known are knative-", id="preset"
            ),
            pytest.param(
                {"preset": "knative-kafkasource", "kind": "K"}, ".kind must be left out", id="both"
            ),
            pytest.param({"presett": "x"}, ".presett is not known; known are", id="a typing error"),
            pytest.param({**PLACE}, ".paths is required", id="no paths"),
            pytest.param(
                {**PLACE, "kind": 3, "paths": PATHS}, ".kind must be a name", id="a number"
            ),
            pytest.param(
                {**PLACE, "group": "a/b", "paths": PATHS}, ".group must be a name", id="a slash"
            ),
            pytest.param(
                {**PLACE, "group": "vreplica.dev", "paths": PATHS},
                "has no foreign kinds",
                id="our own group",
            ),
            pytest.param(
                {**PLACE, "paths": {"vreplicas": "n"}},
                ".paths.placements must be keys",
                id="one path",
            ),
            pytest.param(
                {**PLACE, "paths": {**PATHS, "vreplica": "n"}}, ".paths.vreplica is not", id="typo"
            ),
            pytest.param(
                {**PLACE, "paths": {**PATHS, "vreplicas": ".spec.n"}},
                "must be keys with dots",
                id="a leading dot",
            ),
            pytest.param(
                {**PLACE, "paths": {**PATHS, "vreplicas": "spec[0]"}},
                "must be keys with dots",
                id="an index",
            ),
            pytest.param(
                {**PLACE, "paths": {**PATHS, "vreplicas": ".".join("a" * 17)}},
                "must be keys",
                id="too deep",
            ),
            pytest.param(
                {**PLACE, "paths": {**PATHS, "placements": "spec.placements"}},
                "below status",
                id="not a status",
            ),
            pytest.param(
                {**PLACE, "paths": {**PATHS, "placements": "status"}},
                "below status",
                id="all of it",
            ),
            pytest.param(
                {**PLACE, "paths": {**PATHS, "placements": "status.conditions"}},
                "below status",
                id="conditions",
            ),
            pytest.param(
                {**PLACE, "paths": {**PATHS, "scheduledVReplicas": "spec.n"}},
                "below status",
                id="the spec",
            ),
            pytest.param(
                {**PLACE, "paths": {**PATHS, "conditions": "spec.conditions"}},
                ".paths.conditions must be below status",
                id="conditions in the spec",
            ),
            pytest.param(
                {**PLACE, "paths": {**PATHS, "conditions": 3}},
                ".paths.conditions must be keys with dots",
                id="conditions as a number",
            ),
            pytest.param(
                {**PLACE, "paths": {**PATHS, "conditions": "status.placements"}},
                ".paths.conditions must not be paths.placements or below it",
                id="conditions over placements",
            ),
            pytest.param(
                {**PLACE, "paths": {**PATHS, "scheduledVReplicas": "status.placements.n"}},
                ".paths.scheduledVReplicas must not be paths.placements or below it",
                id="a count in the placements",
            ),
            pytest.param(
                {**PLACE, "paths": {**PATHS, "conditions": "status.conditions\nx: y"}},
                "must be keys with dots between them (as spec.replicas), not 'status.condi",
                id="a line break",
            ),
            pytest.param(
                {**PLACE, "paths": {**PATHS, "podName": "a.b"}},
                "must be one key",
                id="a path for a key",
            ),
            pytest.param(
                {"preset": "knative-kafkasource", "writeStatus": "no"},
                ".writeStatus must be",
                id="flag",
            ),
        ],
    )
    def test_an_entry_that_cannot_be_read_is_told_and_hinders_no_other(self, entry, problem):
        sources, problems = sources_from([entry, {"preset": "knative-consumergroup"}])
        assert sources == (GROUP,)
        assert len(problems) == 1
        assert problems[0].startswith("spec.sources[0]")
        assert problem in problems[0]

    def test_more_entries_than_the_limit_are_told(self):
        sources, problems = sources_from([{"preset": "knative-consumergroup"}] * (SOURCES_MAX + 1))
        assert (len(sources), problems) == (
            SOURCES_MAX,
            ("spec.sources has 17 entries, and the limit is 16",),
        )

    @given(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.text(max_size=5)
            | st.sampled_from(["status.a", "x.dev"]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["preset", "paths", "placements", "vreplicas", "labelSelector", *PLACE]
                    ),
                    inner,
                )
            ),
        )
    )
    def test_nothing_raises(self, listed):
        sources_from(listed)

    def test_a_pool_keeps_its_other_fields_whatever_its_sources_are(self):
        spec = {"statefulSet": "s", "slotsPerPod": 20, "sources": "all"}
        pool = pool_from({"metadata": {"namespace": "k", "name": "p"}, "spec": spec})
        assert (pool.slots_per_pod, pool.sources) == (20, ())
        assert pool.source_problems == ("spec.sources must be a list",)


def claimant(name: str, *, selects: bool = True, labels: dict[str, str] | None = None) -> Claimant:
    source = Source(
        group=GROUP.group,
        versions=GROUP.versions,
        resource=GROUP.resource,
        kind=GROUP.kind,
        paths=GROUP.paths,
        selector=LabelSelector(match_labels=labels or {}),
    )
    return Claimant(a_pool(name=name, stateful_set=name), source, selects)


class TestWhoseItIs:
    def owner(
        self, claimants: list[Claimant], labels=None, placed_on=(), has=""
    ) -> tuple[str, tuple[str, ...]]:
        winner, others = owner_of(claimants, labels or {}, placed_on, has)
        return (winner.pool.name if winner else "", others)

    def test_the_first_that_selects_it_has_it_and_the_others_are_named(self):
        assert self.owner([claimant("a"), claimant("b"), claimant("c")]) == (
            "a",
            (f"{NS}/b", f"{NS}/c"),
        )

    def test_one_that_does_not_select_its_namespace_is_passed_over(self):
        assert self.owner([claimant("a", selects=False), claimant("b")]) == ("b", ())

    def test_one_that_does_not_select_its_labels_is_passed_over(self):
        assert self.owner([claimant("a", labels={"x": "1"}), claimant("b")], {"x": "2"}) == (
            "b",
            (),
        )

    def test_a_pool_that_declares_the_kind_twice_is_no_conflict(self):
        assert self.owner([claimant("a", labels={"x": "1"}), claimant("a")], {"x": "1"}) == (
            "a",
            (),
        )

    def test_once_it_is_placed_it_stays_with_the_pool_of_those_pods(self):
        pools = [claimant("a"), claimant("b"), claimant("c")]
        assert self.owner(pools, placed_on=["b-0", "b-3"]) == ("b", (f"{NS}/a", f"{NS}/c"))
        assert self.owner(pools, placed_on=["gone-0"]) == ("a", (f"{NS}/b", f"{NS}/c"))

    def test_of_two_pools_whose_pods_have_the_same_names_it_stays_with_the_one_that_has_it(self):
        pools = [
            Claimant(a_pool(name=name, stateful_set="same"), claimant(name).source, True)
            for name in "ab"
        ]
        assert self.owner(pools, placed_on=["same-0"], has=f"{NS}/b") == ("b", (f"{NS}/a",))
        assert self.owner(pools, placed_on=["same-0"]) == ("a", (f"{NS}/b",))

    def test_selected_by_nobody_it_stays_where_it_publishes_placements(self):
        pools = [claimant("a", selects=False), claimant("b", selects=False)]
        assert self.owner(pools, placed_on=["b-0", "b-3"]) == ("b", ())

    def test_selected_by_nobody_and_placed_nowhere_it_is_nobodys(self):
        assert self.owner([claimant("b", selects=False)]) == ("", ())

    def test_selected_by_nobody_any_more_it_stays_with_the_pool_that_has_it(self):
        """Nothing that we know of is published: a status of ours may be on its way (seed
        251001203).
        """
        pools = [claimant("a", selects=False), claimant("b", selects=False)]
        assert self.owner(pools, has=f"{NS}/b") == ("b", ())
        assert self.owner([claimant("b", selects=False, labels={"x": "1"})], has=f"{NS}/b") == (
            "",
            (),
        )

    @pytest.mark.parametrize("has", ["", f"{NS}/b"])
    def test_labelled_for_no_pool_it_stays_where_it_publishes_placements(self, has):
        """Seed 773000002: its ledger entries went while its status named them."""
        pools = [claimant(name, labels={"x": name}) for name in "ab"]
        assert self.owner(pools, {"x": "gone"}, placed_on=["b-0", "b-1"], has=has) == ("b", ())
        assert self.owner(pools, {"x": "a"}, placed_on=["b-0", "b-1"], has=has) == ("a", ())
        assert self.owner(pools, {"x": "gone"}, has=has) == ("", ())

    @pytest.mark.parametrize("placed_on", [["b-0", "c-0"], ["b-x"], ["other-0"]])
    def test_labelled_for_a_pool_not_for_it_and_on_others_pods_it_is_that_pools_to_be_refused(
        self, placed_on
    ):
        pools = [
            claimant("b", selects=False, labels={"x": "b"}),
            claimant("other", labels={"x": "o"}),
        ]
        assert self.owner(pools, {"x": "b"}, placed_on=placed_on) == ("b", ())


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        pytest.param("t/a", False, id="a VPod"),
        pytest.param(f"t/a@{GROUP.key}", False, id="of a declared kind"),
        pytest.param("t/a@broker.x.dev", True, id="of a kind that no pool declares"),
        pytest.param(
            "t/a@placeable.duck.knative.dev", True, id="of a caller that does not say what it is"
        ),
    ],
)
def test_a_key_is_its_callers_unless_the_pool_declares_its_kind(key, kept):
    assert is_caller_kept(a_pool(sources=(GROUP,)), key) is kept


def test_without_the_pool_every_key_with_a_source_is_its_callers():
    assert is_caller_kept(None, f"t/a@{GROUP.key}")
    assert not is_caller_kept(None, "t/a")


def test_the_source_is_what_stands_behind_the_at_sign():
    assert (source_of("t/a@k.g"), source_of("t/a")) == ("k.g", "")
