"""Of the installation: API server, CRDs, programs, a leader, policies."""

import pytest

from extender.cli.doctor.checks.facts import Certificate
from extender.cli.doctor.checks.registrations import PLURALS
from extender.cli.doctor.checks.verdict import Verdict
from extender.model.names import BUCKETS_ANNOTATION, OWN_NAMESPACE
from tests.cli.doctor.breaking import (
    BROKEN,
    Break,
    E,
    U,
    W,
    assert_found_alone,
    by_url,
    empty,
    set_on_first,
)
from tests.cli.doctor.scene import Obj, Scene, named, stamp

OK = Verdict.OK


def kept_by_another(scene: Scene) -> None:
    deployment = next(
        obj for obj in scene.items("deployments") if obj["metadata"]["name"] == "vreplica-webhook"
    )
    deployment["spec"]["template"]["spec"]["containers"][0]["command"] = [
        "vreplica-webhook",
        "--upkeep=none",
    ]


def scheduler_image(tag: str) -> Break:
    def change(scene: Scene) -> None:
        pod = scene.first("deployments")["spec"]["template"]["spec"]
        pod["containers"][0]["image"] = f"registry:5000/kube-scheduler:{tag}"

    return change


def helms(obj: Obj) -> None:
    obj["metadata"] |= {
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {
            "meta.helm.sh/release-name": "r",
            "meta.helm.sh/release-namespace": "vreplica-system",
        },
    }


def schema_of(scene: Scene) -> Obj:
    schema: Obj = scene.first("customresourcedefinitions")["spec"]["versions"][0]["schema"][
        "openAPIV3Schema"
    ]
    return dict(schema["properties"])


ROWS = [
    pytest.param(
        lambda s: setattr(s, "version", {"gitVersion": "v1.28.4"}),
        "api-server",
        W,
        "ValidatingAdmissionPolicy",
        id="an old API server",
    ),
    pytest.param(lambda s: setattr(s, "version", None), "api-server", U, "", id="no version"),
    pytest.param(
        lambda s: s.items("customresourcedefinitions").pop(0),
        "crds",
        E,
        "vpods.vreplica.dev is not there",
        id="a CRD is missing",
    ),
    pytest.param(
        set_on_first("customresourcedefinitions", "status", value={}),
        "crds",
        E,
        "is not Established",
        id="a CRD is not established",
    ),
    pytest.param(
        lambda s: schema_of(s)["spec"]["properties"].pop("slotsPerVReplica"),
        "crds",
        E,
        "does not know spec.slotsPerVReplica",
        id="an older CRD",
    ),
    pytest.param(
        lambda s: schema_of(s)["spec"]["properties"].update(colour={"type": "string"}),
        "crds",
        W,
        "also knows spec.colour",
        id="a newer CRD",
    ),
    pytest.param(
        empty("deployments"), "deployments", W, "vreplica-webhook is not there", id="no Deployments"
    ),
    pytest.param(
        kept_by_another,
        "deployments",
        W,
        "vreplica-webhook-upkeep is not there",
        id="nobody renews the webhook's certificate",
    ),
    pytest.param(
        set_on_first("deployments", "status", value={}),
        "deployments",
        E,
        "none of 2 replicas is ready",
        id="nothing is ready",
    ),
    pytest.param(
        set_on_first("deployments", "status", "readyReplicas", value=1),
        "deployments",
        W,
        "1 of 2",
        id="one is not ready",
    ),
    pytest.param(empty("leases"), "leader", E, "none of its pods has led yet", id="no Lease"),
    pytest.param(
        set_on_first("leases", "spec", "holderIdentity", value=""),
        "leader",
        E,
        "has no holder",
        id="nobody leads",
    ),
    pytest.param(
        set_on_first("leases", "spec", "renewTime", value=stamp(100)),
        "leader",
        E,
        "renewed 100 s ago",
        id="a dead leader",
    ),
    pytest.param(
        set_on_first("leases", "spec", "renewTime", value=stamp(-100)),
        "leader",
        W,
        "in the future",
        id="a wrong clock",
    ),
    pytest.param(
        scheduler_image("v1.37.0"),
        "version-skew",
        E,
        "newer than the API server",
        id="a newer kube-scheduler",
    ),
    pytest.param(
        scheduler_image(f"v1.37.0@sha256:{'ab' * 32}"),
        "version-skew",
        E,
        "newer than the API server",
        id="a newer kube-scheduler by digest",
    ),
    pytest.param(
        scheduler_image("v1.34.1"),
        "version-skew",
        W,
        "older than the API server",
        id="an older kube-scheduler",
    ),
    pytest.param(
        lambda s: s.items("validatingadmissionpolicybindings").pop(0),
        "admission-policies",
        W,
        "is bound by nothing",
        id="a policy without its binding",
    ),
]


def a_lease_of_another_bucket(total: int, holder: str = "", age_s: float | None = 86_400) -> Obj:
    renewed = {} if age_s is None else {"renewTime": stamp(age_s), "leaseDurationSeconds": 1}
    spec = {"holderIdentity": holder, **renewed}
    return named(f"vreplica-scheduler.01-of-{total:02d}", OWN_NAMESPACE, spec=spec)


@pytest.mark.parametrize(
    ("lease", "buckets", "verdict"),
    [
        pytest.param(a_lease_of_another_bucket(2), "", W, id="of an earlier number"),
        pytest.param(a_lease_of_another_bucket(2), "4", W, id="of another number"),
        pytest.param(a_lease_of_another_bucket(2, "dead"), "", W, id="its holder has died"),
        pytest.param(a_lease_of_another_bucket(2, age_s=None), "", OK, id="of a number to come"),
        pytest.param(a_lease_of_another_bucket(2, "two", 1), "", OK, id="somebody leads by it"),
        pytest.param(a_lease_of_another_bucket(2), "2", E, id="of the number in force"),
        pytest.param(a_lease_of_another_bucket(2, age_s=None), "2", E, id="that nobody takes"),
        pytest.param(a_lease_of_another_bucket(2), "0", E, id="the number is being changed"),
    ],
)
def test_a_lease_without_a_holder_matters_where_its_number_of_buckets_is_in_force(
    lease, buckets, verdict
):
    scene = Scene()
    scene.items("leases").append(lease)
    if buckets:
        scene.first("leases")["metadata"]["annotations"] = {BUCKETS_ANNOTATION: buckets}
    found = scene.results()["leader"]
    assert found.verdict is verdict
    if verdict is W:
        assert "01-of-02 is left over from another number of buckets" in found.summary
        assert found.fix == f"kubectl -n {OWN_NAMESPACE} delete lease vreplica-scheduler.01-of-02"
    if verdict is E:
        assert "01-of-02 has no holder: nothing is placed" in found.summary


def test_while_nobody_has_led_no_number_of_buckets_is_in_force():
    scene = Scene()
    scene.first("leases")["spec"] = {}
    scene.items("leases").append(a_lease_of_another_bucket(2, age_s=None))
    assert len(scene.results()["leader"].evidence) == 2


@pytest.mark.parametrize(BROKEN, ROWS)
def test_one_thing_that_is_wrong_is_found_by_its_check(broken, name, verdict, says):
    assert_found_alone(broken, name, verdict, says)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        pytest.param(lambda s: helms(s.first("deployments")), "helm upgrade r ", id="by Helm"),
        pytest.param(lambda s: None, "kubectl apply -k manifests/crds", id="by kubectl"),
        pytest.param(
            lambda s: [s.items(p).clear() for p in ("deployments", *PLURALS)],
            "Install the chart",
            id="not yet",
        ),
    ],
)
def test_what_is_missing_is_put_back_by_the_tool_that_made_the_rest(made, says):
    scene = Scene()
    made(scene)
    scene.items("customresourcedefinitions").pop(0)
    assert scene.results()["crds"].fix.startswith(says)


def test_programs_that_are_seen_to_run_need_no_deployment():
    scene = Scene()
    scene.items("deployments").clear()
    by_url(Certificate(problem="no answer"))(scene)
    assert scene.results()["deployments"].verdict is Verdict.SKIPPED
    scene.items("leases").clear()
    assert scene.results()["deployments"].evidence == (
        "vreplica-system/vreplica-scheduler is not there; all is well if it runs otherwise, as on "
        "a developer's machine",
    )
