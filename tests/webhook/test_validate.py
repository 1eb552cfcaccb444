import copy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from extender.kube.api import Obj
from extender.model.names import ACKNOWLEDGED_ANNOTATION, ASSIGNMENT_ANNOTATION
from tests.webhook.builders import (
    NS,
    PLACEMENTS,
    POOL_LABEL,
    SERVICE,
    SLOTS,
    a_namespace,
    a_pod,
    a_pool_object,
    a_vpod_object,
    caches,
    request,
)
from webhook.caches import WebhookCaches
from webhook.review import AdmissionRequest, Verdict
from webhook.validate import DEFAULT_RULES, GUARDED_ANNOTATIONS, Rules, validate

KUBELET = "system:node:node-1"


def verdict(
    req: AdmissionRequest, view: WebhookCaches | None = None, rules: Rules = DEFAULT_RULES
) -> Verdict:
    return validate(req, view or caches(pools=[a_pool_object()]), rules)


def running(**annotations: str) -> Obj:
    return a_pod(annotations={PLACEMENTS: '{"t/a":3}', SLOTS: "20", **annotations})


def edited(pod: Obj, **annotations: str | None) -> Obj:
    new = copy.deepcopy(pod)
    for key, value in annotations.items():
        if value is None:
            del new["metadata"]["annotations"][key]
        else:
            new["metadata"]["annotations"][key] = value
    return new


class TestPods:
    @pytest.mark.parametrize("key", GUARDED_ANNOTATIONS)
    @pytest.mark.parametrize(
        "value", [pytest.param("9", id="changed"), pytest.param(None, id="removed")]
    )
    @pytest.mark.parametrize("subresource", ["", "status"])
    def test_nobody_but_the_service_changes_our_annotations(self, key, value, subresource):
        before = running(**{ASSIGNMENT_ANNOTATION: "{}", ACKNOWLEDGED_ANNOTATION: "{}"})
        new = edited(before, **{key: value})
        got = verdict(request(new, before, username="alice", subresource=subresource))
        assert not got.allowed
        assert got.code == 403
        assert key in got.message
        assert f"Pod {NS}/dispatcher-1" in got.message
        assert "'alice'" in got.message

    def test_the_service_may(self):
        assert verdict(
            request(edited(running(), **{PLACEMENTS: "{}"}), running(), username=SERVICE)
        ).allowed

    def test_the_service_may_have_another_account(self):
        rules = Rules(writers=frozenset({"system:serviceaccount:x:y"}))
        new = edited(running(), **{PLACEMENTS: "{}"})
        assert verdict(
            request(new, running(), username="system:serviceaccount:x:y"), rules=rules
        ).allowed
        assert not verdict(request(new, running(), username=SERVICE), rules=rules).allowed

    @pytest.mark.parametrize("subresource", ["", "status"])
    def test_a_kubelets_status_update_passes(self, subresource):
        new = {**edited(running(), team="x"), "status": {"phase": "Running"}}
        assert verdict(request(new, running(), username=KUBELET, subresource=subresource)).allowed

    def test_anybody_may_drain_a_pod(self):
        new = edited(running(), **{"vreplica.dev/unschedulable": "true"})
        assert verdict(request(new, running(), username="alice")).allowed

    def test_a_pod_that_brings_a_ledger_cannot_join_a_pool(self):
        old = running()
        del old["metadata"]["labels"][POOL_LABEL]
        got = verdict(request(running(), old, username="alice"))
        assert not got.allowed
        assert POOL_LABEL in got.message

    def test_a_pod_without_our_annotations_may_get_the_label(self):
        assert verdict(request(a_pod(), a_pod(pool=None), username="alice")).allowed

    @pytest.mark.parametrize(
        ("annotations", "spec", "says"),
        [
            pytest.param({PLACEMENTS: "{}", SLOTS: "20"}, {}, "", id="what the webhook stamps"),
            pytest.param({}, {}, "", id="the webhook was down for it"),
            pytest.param({PLACEMENTS: '{"t/a":20}', SLOTS: "20"}, {}, "", id="full"),
            pytest.param({PLACEMENTS: '{"t/a":[11,2]}'}, {}, "takes 22 slots", id="overcommitted"),
            pytest.param(
                {PLACEMENTS: '{"t/a":[3,1,{"cpu":2}]}'}, {}, "takes 6 cpu", id="too much cpu"
            ),
            pytest.param({PLACEMENTS: "nonsense"}, {}, "not JSON", id="an unreadable ledger"),
            pytest.param({SLOTS: "21"}, {}, "expected 20", id="other slots"),
            pytest.param({SLOTS: "many"}, {}, "'many'", id="slots no number"),
            pytest.param(
                {PLACEMENTS: '{"t/a":1}'},
                {"nodeName": "n"},
                "spec.nodeName",
                id="bound with a made-up ledger",
            ),
            pytest.param({PLACEMENTS: "{}"}, {"nodeName": "n"}, "", id="bound and empty"),
            pytest.param(
                {PLACEMENTS: '{"tenant-a/orders":2}'},
                {"nodeName": "n"},
                "spec.nodeName",
                id="bound with what the statuses say: the service writes it",
            ),
        ],
    )
    def test_a_created_pod_carries_nothing_that_does_harm(self, annotations, spec, says):
        view = caches(
            pools=[a_pool_object(capacities={"cpu": 5})],
            vpods=[a_vpod_object(placements={"dispatcher-1": 2})],
        )
        got = verdict(request(a_pod(annotations=annotations, **spec), username="alice"), view)
        assert got.allowed is not bool(says)
        assert says in got.message

    def test_vreplicas_without_a_pool_are_refused_once_the_caches_know(self):
        pod = a_pod(annotations={PLACEMENTS: '{"t/a":1}'})
        assert not verdict(request(pod), caches()).allowed
        assert verdict(request(pod), caches(synced=False)).allowed

    def test_a_pod_without_the_label_is_not_ours(self):
        assert verdict(request(a_pod(pool=None, annotations={PLACEMENTS: "x"}))).allowed

    def test_deletions_and_bindings_are_not_looked_at(self):
        assert verdict(request(None, running(), operation="DELETE", username="alice")).allowed
        assert verdict(
            request(running(), subresource="binding", operation="CREATE", username="alice")
        ).allowed


def pool_request(obj: Obj | None, old: Obj | None = None, **more: Any) -> AdmissionRequest:
    return request(obj, old, resource="adapterpools", username="alice", **more)


def vpod_request(obj: Obj, old: Obj | None = None, **more: Any) -> AdmissionRequest:
    return request(obj, old, resource="vpods", username="alice", **more)


def a_deletion(pool: Obj) -> AdmissionRequest:
    name = pool["metadata"]["name"]
    return pool_request(None, pool, operation="DELETE", name=name)


class TestScale:
    @staticmethod
    def of(name: str, view: WebhookCaches | None = None, username: str = SERVICE) -> Verdict:
        scale = {"metadata": {"name": name, "namespace": NS}, "spec": {"replicas": 0}}
        more = {"group": "apps", "subresource": "scale", "name": name, "username": username}
        return verdict(request(scale, scale, resource="statefulsets", **more), view)

    def test_the_service_scales_the_statefulset_of_a_pool(self):
        assert self.of("dispatcher").allowed

    def test_it_scales_no_other(self):
        got = self.of("database")
        assert (got.allowed, got.code) == (False, 403)
        assert f"StatefulSet {NS}/database: no AdapterPool names it" in got.message

    def test_anybody_else_scales_what_they_may(self):
        assert self.of("database", username="alice").allowed

    def test_before_the_caches_know_it_is_not_refused(self):
        assert self.of("database", caches(synced=False)).allowed


class TestDeletedAdapterPools:
    def test_one_that_vpods_use_stays_and_the_way_to_delete_it_is_told(self):
        vpods = [a_vpod_object(name) for name in ("a", "b")] + [a_vpod_object("c", pool="other")]
        got = verdict(a_deletion(a_pool_object()), caches(vpods=vpods))
        assert (got.allowed, got.code) == (False, 403)
        assert "adapters/dispatcher: 2 VPods use it" in got.message
        assert 'vreplica.dev/allow-deletion: "true"' in got.message

    def test_it_stays_as_well_if_all_pools_are_deleted_together(self):
        """Found by review: for each object of a deletecollection, kube-apiserver names none."""
        pool = a_pool_object()
        together = pool_request(None, pool, operation="DELETE", name="")
        got = verdict(together, caches(vpods=[a_vpod_object()]))
        assert (got.allowed, got.code) == (False, 403)
        assert "adapters/dispatcher: 1 VPod uses it" in got.message

    def test_one_that_nobody_uses_any_more_may_go(self):
        leaving = a_vpod_object()
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        others = [a_vpod_object(pool="other"), leaving]
        assert verdict(a_deletion(a_pool_object()), caches(vpods=others)).allowed

    @pytest.mark.parametrize(
        ("value", "allowed"), [("true", True), ("1", True), ("yes", False), ("false", False)]
    )
    def test_an_annotation_allows_it_all_the_same(self, value: str, allowed: bool):
        pool = a_pool_object()
        pool["metadata"]["annotations"] = {"vreplica.dev/allow-deletion": value}
        assert verdict(a_deletion(pool), caches(vpods=[a_vpod_object()])).allowed is allowed

    def test_it_goes_with_its_namespace_also_while_tenants_elsewhere_use_it(self):
        namespace = a_namespace("adapters")
        view = caches(vpods=[a_vpod_object()], namespaces=[namespace])
        assert not verdict(a_deletion(a_pool_object()), view).allowed
        namespace["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        view = caches(vpods=[a_vpod_object()], namespaces=[namespace])
        assert verdict(a_deletion(a_pool_object()), view).allowed


class TestAdapterPools:
    def test_a_good_one_is_created(self):
        assert verdict(pool_request(a_pool_object()), caches()).allowed

    def test_a_statefulset_has_one_pool(self):
        got = verdict(pool_request(a_pool_object("second", statefulSet="dispatcher")))
        assert not got.allowed
        assert got.code == 422
        assert f"AdapterPool {NS}/second: spec.statefulSet 'dispatcher'" in got.message
        assert f"AdapterPool {NS}/dispatcher" in got.message

    def test_a_statefulset_of_that_name_in_another_namespace_is_another(self):
        other = a_pool_object("second", statefulSet="dispatcher")
        other["metadata"]["namespace"] = "elsewhere"
        assert verdict(pool_request(other)).allowed

    def test_itself_is_not_in_its_own_way(self):
        assert verdict(pool_request(a_pool_object(slots=30), a_pool_object())).allowed
        assert verdict(pool_request(a_pool_object())).allowed

    def test_one_that_already_shares_can_still_be_edited(self):
        second = a_pool_object("second", statefulSet="dispatcher")
        assert verdict(
            pool_request({**second, "spec": {**second["spec"], "minPods": 2}}, second)
        ).allowed

    def test_an_unknown_profile_is_told_the_known_ones(self):
        known = Rules(profiles=frozenset({"default", "pack"}))
        got = verdict(pool_request(a_pool_object(profile="fast")), caches(), known)
        assert not got.allowed
        assert "spec.profile 'fast' is not known; known are default, pack" in got.message
        assert verdict(
            pool_request(a_pool_object(profile="fast")),
            caches(),
            Rules(profiles=frozenset({"fast"})),
        ).allowed

    def test_a_profile_that_is_no_longer_configured_does_not_hinder_other_edits(self):
        old = a_pool_object(profile="fast")
        assert verdict(
            pool_request(a_pool_object(profile="fast", minPods=1), old), caches()
        ).allowed

    def test_an_unknown_source_preset_is_told_the_known_ones(self):
        good, bad = {"preset": "knative-kafkasource"}, {"preset": "kafka"}
        got = verdict(pool_request(a_pool_object(sources=[good, bad])), caches())
        assert not got.allowed
        assert "spec.sources[1].preset 'kafka'" in got.message
        assert "knative-consumergroup, knative-kafkasource" in got.message

    def test_a_source_that_cannot_be_read_is_told_where(self):
        paths = {"vreplicas": "spec.n", "placements": "spec.placements"}
        place = {"group": "x.dev", "version": "v1", "resource": "xs", "kind": "X", "paths": paths}
        got = verdict(pool_request(a_pool_object(sources=[place])), caches())
        assert (got.allowed, got.code) == (False, 422)
        assert "spec.sources[0].paths.placements must be below status" in got.message

    def test_a_source_that_was_stored_before_it_was_refused_does_not_hinder_other_edits(self):
        old = a_pool_object(sources=[{"preset": "kafka"}])
        assert verdict(
            pool_request(a_pool_object(sources=[{"preset": "kafka"}], minPods=1), old), caches()
        ).allowed

    def test_a_kind_that_is_declared_twice_is_a_warning(self):
        got = verdict(
            pool_request(a_pool_object(sources=[{"preset": "knative-consumergroup"}] * 2)), caches()
        )
        assert got.allowed
        assert "consumergroup.internal.kafka.eventing.knative.dev 2 times" in got.warnings[0]

    def test_every_problem_is_named_at_once(self):
        got = verdict(
            pool_request(
                a_pool_object("b", statefulSet="dispatcher", profile="x", sources=[{"preset": "y"}])
            )
        )
        assert got.message.count("; and ") == 2

    def test_shrinking_below_a_vpods_vreplica_is_a_warning(self):
        view = caches(
            pools=[a_pool_object()], vpods=[a_vpod_object(weight=4), a_vpod_object("b", weight=9)]
        )
        got = verdict(pool_request(a_pool_object(slots=8), a_pool_object()), view)
        assert got.allowed
        assert "1 VPod needs more slots for one vreplica than spec.slotsPerPod 8" in got.warnings[0]

    def test_taking_a_dimension_away_that_vpods_take_is_a_warning(self):
        view = caches(
            pools=[a_pool_object(capacities={"cpu": 9})],
            vpods=[a_vpod_object(amounts={"cpu": 2}), a_vpod_object("b")],
        )
        got = verdict(pool_request(a_pool_object(), a_pool_object(capacities={"cpu": 9})), view)
        assert got.allowed
        assert "1 VPod takes a dimension that spec.capacities lacks" in got.warnings[0]

    def test_a_dimension_that_means_slots_is_refused_with_the_field(self):
        got = verdict(pool_request(a_pool_object(capacities={"slots": 9})), caches())
        assert not got.allowed
        assert "spec.capacities: 'slots' is no name of a dimension" in got.message

    def test_one_that_is_going_away_can_lose_its_finalizers(self):
        obj = a_pool_object("second", statefulSet="dispatcher", profile="x")
        obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        assert verdict(pool_request(obj, a_pool_object("second", statefulSet="dispatcher"))).allowed

    def test_an_unreadable_one_is_refused_with_the_field(self):
        got = verdict(pool_request(a_pool_object(slots=0)), caches())
        assert not got.allowed
        assert "spec.slotsPerPod" in got.message


class TestVPods:
    def test_one_vreplica_must_fit_a_pod(self):
        got = verdict(vpod_request(a_vpod_object(weight=21)))
        assert not got.allowed
        assert "VPod tenant-a/orders: one vreplica takes 21 slots" in got.message
        assert f"AdapterPool {NS}/dispatcher has 20" in got.message
        assert verdict(vpod_request(a_vpod_object(weight=20))).allowed

    @pytest.mark.parametrize(
        ("capacities", "amounts", "says"),
        [
            pytest.param({"cpu": 4}, {"cpu": 4}, "", id="it fits"),
            pytest.param({"cpu": 4}, {}, "", id="it takes nothing of it"),
            pytest.param({"cpu": 4}, {"cpu": 5}, "one vreplica takes 5 cpu", id="too much"),
            pytest.param({"cpu": 4}, {"gpu": 1}, "has no gpu (spec.capacities)", id="unknown"),
            pytest.param({}, {"cpu": 1}, "has no cpu (spec.capacities)", id="no dimensions"),
        ],
    )
    def test_one_vreplica_must_fit_a_pods_dimensions(self, capacities, amounts, says):
        view = caches(pools=[a_pool_object(capacities=capacities)])
        got = verdict(vpod_request(a_vpod_object(amounts=amounts)), view)
        assert got.allowed is not bool(says)
        assert says in got.message

    @pytest.mark.parametrize(
        ("vreplicas", "together", "allowed"),
        [(100, 40, True), (100, 41, False), (40, 100, True), (41, 100, False)],
    )
    def test_what_it_needs_together_must_fit_on_the_pods_that_there_may_be(
        self, vreplicas: int, together: int, allowed: bool
    ):
        view = caches(pools=[a_pool_object(maxPods=2)])
        before = a_vpod_object()
        spec = {**before["spec"], "vreplicas": vreplicas, "minAvailable": together}
        after = {**before, "spec": spec}
        for old in (None, before):
            got = verdict(vpod_request(after, old), view)
            assert got.allowed is allowed
            assert allowed or "(spec.minAvailable) need 3 pods" in got.message

    def test_one_that_needs_too_much_together_may_be_made_smaller(self):
        view = caches(pools=[a_pool_object(maxPods=2)])
        spec = {**a_vpod_object()["spec"], "minAvailable": 100}
        old, new = (
            {**a_vpod_object(), "spec": {**spec, "vreplicas": count}} for count in (100, 60)
        )
        assert verdict(vpod_request(new, old), view).allowed
        assert not verdict(vpod_request(old, new), view).allowed

    @pytest.mark.parametrize(
        ("vreplicas", "most", "warned"),
        [(4, 2, False), (5, 2, True), (5, None, False), (1, 1, False)],
    )
    def test_what_will_wait_because_of_max_per_pod_is_told(self, vreplicas, most, warned):
        view = caches(pools=[a_pool_object(maxPods=2)])
        vpod = a_vpod_object()
        spec = {**vpod["spec"], "vreplicas": vreplicas, "placement": {"maxPerPod": most}}
        got = verdict(vpod_request({**vpod, "spec": spec}), view)
        assert got.allowed
        assert ("1 of 5 vreplicas will wait" in "".join(got.warnings)) is warned

    def test_a_lower_max_per_pod_may_not_spread_it_over_more_pods_than_there_may_be(self):
        view = caches(pools=[a_pool_object(maxPods=2)])
        spec = {**a_vpod_object()["spec"], "vreplicas": 6, "minAvailable": 6}
        limited = {
            most: {**a_vpod_object(), "spec": {**spec, "placement": {"maxPerPod": most}}}
            for most in (1, 2, 3)
        }
        unlimited = {**a_vpod_object(), "spec": spec}
        for old in (unlimited, limited[3]):
            assert not verdict(vpod_request(limited[2], old), view).allowed
        assert verdict(vpod_request(limited[2], limited[1]), view).allowed
        assert verdict(vpod_request(limited[3], unlimited), view).allowed

    def test_a_max_per_pod_may_be_added_to_a_vpod_that_no_pod_can_hold_any_more(self):
        view, heavy = caches(pools=[a_pool_object(maxPods=2)]), a_vpod_object(weight=21)
        for together in (None, 2):
            spec = {**heavy["spec"], "placement": {"maxPerPod": 2}, "minAvailable": together}
            assert verdict(vpod_request({**heavy, "spec": spec}, heavy), view).allowed is (
                together is None
            )

    def test_making_it_heavier_is_checked_and_other_edits_are_not(self):
        heavy, light = a_vpod_object(weight=21), a_vpod_object(weight=1)
        assert not verdict(vpod_request(heavy, light)).allowed
        assert verdict(
            vpod_request({**heavy, "spec": {**heavy["spec"], "vreplicas": 1}}, heavy)
        ).allowed

    @pytest.mark.parametrize(
        ("labels", "allowed"),
        [
            pytest.param({"tenant": "yes"}, True, id="selected"),
            pytest.param({"tenant": "no"}, False, id="another value"),
            pytest.param({}, False, id="no label"),
        ],
    )
    def test_only_selected_namespaces_may_use_the_pool(self, labels, allowed):
        pool = a_pool_object(namespaceSelector={"matchLabels": {"tenant": "yes"}})
        view = caches(pools=[pool], namespaces=[a_namespace("tenant-a", **labels)])
        got = verdict(vpod_request(a_vpod_object()), view)
        assert got.allowed is allowed
        assert allowed or "does not select namespace tenant-a" in got.message

    def test_a_namespace_that_is_not_known_yet_is_a_warning(self):
        pool = a_pool_object(namespaceSelector={"matchLabels": {"tenant": "yes"}})
        got = verdict(vpod_request(a_vpod_object()), caches(pools=[pool]))
        assert got.allowed
        assert "tenant-a" in got.warnings[0]

    def test_a_namespace_that_lost_its_label_can_still_shrink_its_vpods(self):
        pool = a_pool_object(namespaceSelector={"matchLabels": {"tenant": "yes"}})
        view = caches(pools=[pool], namespaces=[a_namespace("tenant-a")])
        smaller = a_vpod_object()
        smaller["spec"]["vreplicas"] = 1
        assert verdict(vpod_request(smaller, a_vpod_object()), view).allowed

    @pytest.mark.parametrize(
        ("synced", "says"),
        [
            pytest.param(True, "does not exist", id="synced"),
            pytest.param(False, "just started", id="not yet"),
        ],
    )
    def test_a_pool_that_does_not_exist_is_a_warning(self, synced, says):
        got = verdict(vpod_request(a_vpod_object()), caches(synced=synced))
        assert got.allowed
        assert says in got.warnings[0]

    def test_a_generated_name_is_enough(self):
        obj = a_vpod_object(weight=21)
        obj["metadata"] = {"generateName": "orders-", "namespace": "tenant-a"}
        got = verdict(vpod_request(obj))
        assert "VPod tenant-a/orders-:" in got.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 50) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "spec",
                    "status",
                    "annotations",
                    "labels",
                    "poolRef",
                    "name",
                    "placements",
                    "sources",
                    "preset",
                    "statefulSet",
                    POOL_LABEL,
                    PLACEMENTS,
                    SLOTS,
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), JSON)


@given(st.sampled_from(["pods", "adapterpools", "vpods", "other"]), OBJECTS, st.none() | OBJECTS)
def test_no_object_raises_anything(resource, new, old):
    verdict(request(new, old, resource=resource, namespace=NS))
