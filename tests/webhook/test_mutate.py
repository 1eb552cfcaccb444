import pytest
from hypothesis import given, strategies as st

from extender.kube.api import Obj
from extender.model.decode import pod_from, pool_from
from extender.model.names import (
    ACKNOWLEDGED_ANNOTATION,
    ASSIGNMENT_ANNOTATION,
    EVICTING_ANNOTATION,
)
from extender.model.objects import AdapterPool
from tests.webhook.builders import (
    PLACEMENTS,
    SLOTS,
    a_pod,
    a_pool_object,
    a_vpod_object,
    caches,
    patched,
    request,
)
from webhook.mutate import Stamp, mutate, stamp
from webhook.review import ALLOWED

POOL = pool_from(a_pool_object())


MANAGED = Stamp(slots_resource=True)
COUNTED = Stamp(slots_resource=True, slots_counted=True)


def stamped(
    pod: Obj,
    pool: AdapterPool | None = POOL,
    options: Stamp = Stamp(),  # noqa: B008  # frozen
) -> Obj:
    return patched(pod, mutate(pod, pool, options).patch)


def test_an_adapter_pod_is_sent_to_our_scheduler_with_slots_and_an_empty_ledger():
    pod = stamped(a_pod())
    assert pod["spec"]["schedulerName"] == "vreplica-scheduler"
    assert pod["metadata"]["annotations"] == {SLOTS: "20", PLACEMENTS: "{}"}
    assert pod["spec"]["containers"][0]["resources"] == {}
    read = pod_from(pod)
    assert (read.slots, read.slots_request, read.ledger) == (20, None, {})


def test_for_a_scheduler_that_others_share_it_requests_0_of_the_resource():
    """kube-scheduler and node autoscalers look for what a pod requests more than 0 of."""
    pod = stamped(a_pod(), options=MANAGED)
    assert pod["spec"]["containers"][0]["resources"] == {
        "limits": {SLOTS: "0"},
        "requests": {SLOTS: "0"},
    }
    assert (pod_from(pod).slots, pod_from(pod).slots_request) == (20, 0)


def test_where_kube_scheduler_counts_slots_a_pod_requests_as_many_as_it_has():
    pod = stamped(a_pod(), options=COUNTED)
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {SLOTS: "20"}
    assert pod_from(pod).slots_request == 20
    unknown = stamped(a_pod(), None, options=COUNTED)
    assert unknown["spec"]["containers"][0]["resources"]["requests"] == {SLOTS: "0"}


def test_a_template_copied_from_a_stamped_pod_loses_the_resource_that_no_node_offers():
    requested = {"limits": {SLOTS: "20"}, "requests": {SLOTS: "20", "cpu": "1"}}
    pod = stamped(a_pod(containers=[{"name": "c", "resources": requested}]))
    assert pod["spec"]["containers"][0]["resources"] == {"limits": {}, "requests": {"cpu": "1"}}


def test_a_pod_without_the_label_is_left_alone():
    assert mutate(a_pod(pool=None), POOL) == ALLOWED
    assert mutate({}, POOL) == ALLOWED


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, "vreplica-scheduler", id="absent"),
        pytest.param({"schedulerName": ""}, "vreplica-scheduler", id="empty"),
        pytest.param(
            {"schedulerName": "default-scheduler"}, "vreplica-scheduler", id="the default"
        ),
        pytest.param({"schedulerName": "mine"}, "mine", id="the user's choice stays"),
    ],
)
def test_the_scheduler_is_set_only_where_nobody_chose_one(before, after):
    assert stamped(a_pod(**before))["spec"]["schedulerName"] == after


def test_the_default_scheduler_can_be_the_one_that_calls_us():
    pod = a_pod(schedulerName="default-scheduler")
    options = Stamp(scheduler_name="default-scheduler")
    assert stamped(pod, options=options)["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize(
    "container",
    [
        pytest.param({}, id="no resources"),
        pytest.param({"resources": None}, id="null resources"),
        pytest.param({"resources": {}}, id="empty resources"),
        pytest.param({"resources": {"requests": {"cpu": "1"}}}, id="requests only"),
        pytest.param({"resources": {"limits": None, "requests": {}}}, id="null limits"),
        pytest.param(
            {"resources": {"limits": {SLOTS: "7"}, "requests": {SLOTS: 7}}}, id="another number"
        ),
    ],
)
def test_missing_parents_are_made_and_other_resources_stay(container):
    pod = stamped(a_pod(containers=[{"name": "c", **container}]), options=MANAGED)
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["limits"][SLOTS] == resources["requests"][SLOTS] == "0"
    if "cpu" in ((container.get("resources") or {}).get("requests") or {}):
        assert resources["requests"]["cpu"] == "1"


def test_the_resource_is_on_the_first_container_and_on_no_other():
    def also() -> Obj:
        return {
            "name": "d",
            "resources": {"limits": {SLOTS: "5"}, "requests": {SLOTS: "5", "cpu": "1"}},
        }

    pod = stamped(
        a_pod(containers=[{"name": "c"}, also()], initContainers=[also()]), options=MANAGED
    )
    assert pod["spec"]["containers"][1]["resources"] == {"limits": {}, "requests": {"cpu": "1"}}
    assert pod["spec"]["initContainers"][0]["resources"] == {"limits": {}, "requests": {"cpu": "1"}}
    assert pod_from(pod).slots_request == 0


def test_what_a_client_wrote_into_our_annotations_is_overwritten_and_theirs_stay():
    pod = stamped(a_pod(annotations={PLACEMENTS: '{"t/a":99}', SLOTS: "99", "team": "x~/y"}))
    assert pod["metadata"]["annotations"] == {PLACEMENTS: "{}", SLOTS: "20", "team": "x~/y"}


def test_what_a_template_copied_from_a_pod_says_of_that_pod_is_removed():
    """Found by review: an adapter that first read the other pod's assignment served it."""
    told = {ASSIGNMENT_ANNOTATION: "{}", ACKNOWLEDGED_ANNOTATION: "{}", EVICTING_ANNOTATION: "{}"}
    pod = stamped(a_pod(annotations={**told, "team": "x"}))
    assert pod["metadata"]["annotations"] == {PLACEMENTS: "{}", SLOTS: "20", "team": "x"}


def test_a_pod_that_is_created_on_a_node_gets_no_ledger_there_it_would_count_at_once():
    pod = stamped(a_pod(nodeName="n", annotations={PLACEMENTS: '{"t/x":9}'}))
    assert pod["metadata"]["annotations"] == {SLOTS: "20"}


def test_without_a_known_pool_the_pod_still_comes_to_us_with_no_slots_and_a_warning():
    pod = a_pod(annotations={SLOTS: "99", PLACEMENTS: '{"t/a":1}'})
    mutation = mutate(pod, None, options=MANAGED)
    after = patched(pod, mutation.patch)
    assert after["spec"]["schedulerName"] == "vreplica-scheduler"
    assert after["metadata"]["annotations"] == {PLACEMENTS: "{}"}
    assert after["spec"]["containers"][0]["resources"]["requests"] == {SLOTS: "0"}
    assert "'dispatcher' is not known" in mutation.warnings[0]


@pytest.mark.parametrize(("options", "written"), [(MANAGED, "0k"), (MANAGED, 0), (COUNTED, "2k")])
def test_a_canonical_quantity_of_the_api_server_is_as_good(options, written):
    pool = pool_from(a_pool_object(slots=2000))
    pod = stamped(a_pod(), pool, options=options)
    for part in ("limits", "requests"):
        pod["spec"]["containers"][0]["resources"][part][SLOTS] = written
    assert mutate(pod, pool, options=options).patch == ()


RESOURCES = st.none() | st.fixed_dictionaries(
    {},
    optional={
        part: st.none()
        | st.dictionaries(st.sampled_from(["cpu", SLOTS]), st.sampled_from(["1", "20", "1k"]))
        for part in ("limits", "requests")
    },
)
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": st.just("c")}, optional={"resources": RESOURCES}), max_size=3
)
PODS = st.builds(
    a_pod,
    annotations=st.none()
    | st.dictionaries(st.sampled_from([PLACEMENTS, SLOTS, "other/x~y"]), st.text(max_size=4)),
    containers=CONTAINERS,
    initContainers=CONTAINERS,
    schedulerName=st.sampled_from(["", "default-scheduler", "mine"]),
)


@given(PODS, st.sampled_from([None, POOL]), st.sampled_from([Stamp(), MANAGED, COUNTED]))
def test_a_second_run_on_the_result_changes_nothing(pod, pool, options):
    once = stamped(pod, pool, options)
    assert mutate(once, pool, options).patch == ()


def test_a_review_of_a_returning_ordinal_is_answered_from_the_caches():
    view = caches(
        pools=[a_pool_object()],
        vpods=[a_vpod_object(placements={"dispatcher-1": 3, "dispatcher-2": 5})],
    )
    verdict = stamp(request(a_pod("dispatcher-1")), view)
    assert verdict.allowed
    # The ledger is the bind's to write.
    assert patched(a_pod("dispatcher-1"), verdict.patch)["metadata"]["annotations"] == {
        SLOTS: "20",
        PLACEMENTS: "{}",
    }


def test_before_the_caches_are_synced_the_pod_is_stamped_with_what_is_known():
    verdict = stamp(request(a_pod()), caches(synced=False))
    assert patched(a_pod(), verdict.patch)["spec"]["schedulerName"] == "vreplica-scheduler"


def test_names_that_are_in_the_request_alone_are_enough():
    pod = a_pod()
    del pod["metadata"]["namespace"], pod["metadata"]["name"]
    verdict = stamp(
        request(pod, namespace="adapters", name="dispatcher-1"), caches(pools=[a_pool_object()])
    )
    assert patched(pod, verdict.patch)["metadata"]["annotations"][SLOTS] == "20"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(request(a_pod(), a_pod()), id="an update"),
        pytest.param(request(None, a_pod(), operation="DELETE"), id="a deletion"),
        pytest.param(request(a_pod(), subresource="status"), id="a subresource"),
        pytest.param(request(a_pod(), group="apps"), id="another group"),
        pytest.param(request(a_pod(), resource="services", group=""), id="another resource"),
        pytest.param(request(a_pod(pool=None)), id="no label"),
    ],
)
def test_everything_but_the_creation_of_an_adapter_pod_is_allowed_untouched(other):
    assert stamp(other, caches(pools=[a_pool_object()])) == ALLOWED
