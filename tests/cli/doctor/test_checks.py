"""What ``vreplica doctor`` says of an installation in which one thing is wrong, and that it says
nothing else.
"""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from extender.cli.doctor.checks import CHECKS
from extender.cli.doctor.checks.facts import Certificate, Listed, Replica
from extender.cli.doctor.checks.verdict import EVIDENCE_MAX, Verdict
from extender.cli.doctor.checks.webhooks import PLURALS
from extender.cli.doctor.examine import examine
from extender.cli.doctor.report import as_document, as_table, exit_status
from extender.model.names import PLACEMENTS_ANNOTATION, POOL_LABEL, SLOTS_ANNOTATION
from tests.cli.doctor.scene import (
    NS,
    POOL,
    Obj,
    Scene,
    a_bundle,
    a_pod,
    a_vpod,
    named,
    stamp,
    text_of,
)

Break = Callable[[Scene], object]
DAY_S = 86_400


def test_an_installation_that_is_well_is_told_so():
    results = Scene().results()
    absent = {"replica"}  # was not asked
    assert {name: one.verdict for name, one in results.items()} == {
        name: Verdict.SKIPPED if name in absent else Verdict.OK for name in results
    }
    assert not any(one.fix or one.evidence for one in results.values())
    assert exit_status(examine(Scene().facts()), strict=True) == 0


def unbound(age_s: float, **status: object) -> Obj:
    pod = a_pod(2, node="")
    pod["metadata"]["creationTimestamp"] = stamp(age_s)
    pod["status"] |= status
    return pod


NO_SUCH_NODE = {
    "type": "PodScheduled",
    "status": "False",
    "message": "0/3 nodes are available: 3 Insufficient vreplica.dev/slots.",
}


def requesting(pod: Obj) -> Obj:
    """As the webhook stamps it with ``slotsResource``."""
    pod["spec"]["containers"] = [
        {"name": "c", "resources": {"requests": {"vreplica.dev/slots": "20"}}}
    ]
    return pod


def set_on_first(plural: str, *path: str, value: object) -> Break:
    def change(scene: Scene) -> None:
        obj = scene.first(plural)
        for step in path[:-1]:
            obj = obj[step]
        if value is None:
            del obj[path[-1]]
        else:
            obj[path[-1]] = value

    return change


def add(plural: str, obj: Obj) -> Break:
    return lambda scene: scene.items(plural).append(obj)


def empty(plural: str) -> Break:
    return lambda scene: scene.items(plural).clear()


def kept_by_another(scene: Scene) -> None:
    deployment = next(
        obj for obj in scene.items("deployments") if obj["metadata"]["name"] == "vreplica-webhook"
    )
    deployment["spec"]["template"]["spec"]["containers"][0]["command"] = [
        "vreplica-webhook",
        "--upkeep=none",
    ]


def webhook(**fields: object) -> Break:
    return lambda scene: scene.first("mutatingwebhookconfigurations")["webhooks"][0].update(fields)


def serves(pem: bytes) -> Break:
    return lambda scene: scene.first("secrets")["data"].update({"tls.crt": text_of(pem)})


def by_url(shown: Certificate) -> Break:
    def change(scene: Scene) -> None:
        for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            for hook in scene.first(plural)["webhooks"]:
                path = hook["clientConfig"].pop("service")["path"]
                hook["clientConfig"]["url"] = f"https://10.1.1.1:8443{path}"
        scene.more["certificates"] = {
            f"https://10.1.1.1:8443{path}": shown for path in ("/mutate", "/validate")
        }

    return change


def scheduler_image(tag: str) -> Break:
    def change(scene: Scene) -> None:
        pod = scene.first("deployments")["spec"]["template"]["spec"]
        pod["containers"][0]["image"] = f"registry:5000/kube-scheduler:{tag}"

    return change


def replica(**fields: object) -> Break:
    return lambda scene: scene.more.update(replica=Replica("http://r", **fields))  # type: ignore[arg-type]


DEMANDS = {"matchLabels": {"stamped": "yes"}}
E, W, U = Verdict.ERROR, Verdict.WARNING, Verdict.UNKNOWN
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
    pytest.param(
        empty("mutatingwebhookconfigurations"),
        "webhook-registration",
        E,
        "no MutatingWebhookConfiguration",
        id="no webhook",
    ),
    pytest.param(
        webhook(timeoutSeconds=30), "webhook-registration", W, "VS204", id="a slow webhook"
    ),
    pytest.param(
        webhook(objectSelector=DEMANDS),
        "webhook-registration",
        E,
        "pods of pool knative-eventing/dispatcher are left out",
        id="pods without a label that the webhook wants",
    ),
    pytest.param(
        webhook(namespaceSelector=DEMANDS),
        "webhook-registration",
        E,
        "are left out",
        id="a namespace without a label that the webhook wants",
    ),
    pytest.param(
        lambda s: (
            webhook(namespaceSelector=DEMANDS)(s),
            s.listed.update(namespaces="forbidden: no"),
        ),
        "webhook-registration",
        U,
        "forbidden",
        id="namespaces that may not be read, and the webhook wants a label",
    ),
    pytest.param(
        webhook(matchConditions=[{"name": "never", "expression": "false"}]),
        "webhook-registration",
        W,
        "never: not evaluated here",
        id="conditions that only the API server evaluates",
    ),
    pytest.param(
        webhook(objectSelector={}, failurePolicy="Fail"),
        "webhook-selectors",
        E,
        "kube-system",
        id="a webhook that locks kube-system",
    ),
    pytest.param(
        webhook(objectSelector={}),
        "webhook-selectors",
        W,
        "kube-system",
        id="a webhook that slows kube-system down",
    ),
    pytest.param(
        serves(a_bundle().cert_pem),
        "webhook-certificate",
        E,
        "signed by none",
        id="another authority's certificate",
    ),
    pytest.param(serves(b"x"), "webhook-certificate", E, "cannot be read", id="no certificate"),
    pytest.param(
        lambda s: s.more.update(now_s=1_800_000_000.0 + 80 * DAY_S),
        "webhook-certificate",
        W,
        "was not renewed",
        id="it ends soon",
    ),
    pytest.param(
        lambda s: s.more.update(now_s=1_800_000_000.0 + 91 * DAY_S),
        "webhook-certificate",
        E,
        "ended",
        id="it has ended",
    ),
    pytest.param(
        lambda s: s.listed.update(secrets="forbidden: no"),
        "webhook-certificate",
        U,
        "forbidden",
        id="a Secret that may not be read",
    ),
    pytest.param(
        by_url(Certificate(problem="no answer")),
        "webhook-certificate",
        U,
        "no answer",
        id="a webhook out of our reach",
    ),
    pytest.param(
        by_url(Certificate(a_bundle().cert_pem)),
        "webhook-certificate",
        E,
        "signed by none",
        id="another server at the URL",
    ),
    pytest.param(
        empty("services"),
        "webhook-endpoints",
        E,
        "Service vreplica-system/vreplica-webhook is not there",
        id="no Service",
    ),
    pytest.param(
        set_on_first("endpointslices", "endpoints", value=[]),
        "webhook-endpoints",
        E,
        "no endpoint that is ready",
        id="no endpoints",
    ),
    pytest.param(
        add("pods", unbound(60)),
        "kube-scheduler",
        E,
        "no scheduler named 'vreplica-scheduler' has looked",
        id="nobody schedules",
    ),
    pytest.param(
        add(
            "pods",
            unbound(
                60, conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]
            ),
        ),
        "kube-scheduler",
        W,
        "0/3 nodes",
        id="no node fits",
    ),
    pytest.param(
        set_on_first("pods", "metadata", "annotations", "vreplica.dev/unschedulable", value="yes"),
        "drain-marks",
        W,
        "vreplica.dev/unschedulable is 'yes', which is no bool",
        id="a mark that drains nothing",
    ),
    pytest.param(
        set_on_first("pods", "metadata", "annotations", SLOTS_ANNOTATION, value=None),
        "stranded-pods",
        E,
        "no annotation",
        id="not stamped",
    ),
    pytest.param(
        add("pods", requesting(a_pod(2))),
        "slots-resource",
        W,
        "1 of 3 adapter pods request vreplica.dev/slots",
        id="of both ways",
    ),
    pytest.param(
        add("pods", requesting(unbound(5, conditions=[NO_SUCH_NODE]))),
        "slots-resource",
        E,
        "waits for a node that offers",
        id="no node offers it",
    ),
    pytest.param(
        set_on_first("pods", "status", "conditions", value=[{"type": "Ready", "status": "False"}]),
        "served",
        E,
        "knative-eventing/dispatcher-0: the pod is not Ready, and 3 vreplicas on it",
        id="a pod that is not Ready",
    ),
    pytest.param(
        set_on_first(
            "nodes", "status", "conditions", value=[{"type": "Ready", "status": "Unknown"}]
        ),
        "served",
        E,
        "node node-0 is not Ready, and 3 vreplicas on it",
        id="a node that is lost",
    ),
    pytest.param(
        set_on_first("pods", "spec", "schedulerName", value="other"),
        "stranded-pods",
        W,
        "was bound by 'other'",
        id="another scheduler's",
    ),
    pytest.param(
        set_on_first("adapterpools", "spec", "slotsPerPod", value=2),
        "overcommit",
        E,
        "carries 3 slots, its pool gives it 2",
        id="over its slots",
    ),
    pytest.param(
        set_on_first("pods", "metadata", "annotations", PLACEMENTS_ANNOTATION, value="x"),
        "overcommit",
        E,
        "cannot be read",
        id="no ledger",
    ),
    pytest.param(
        set_on_first(
            "pods", "metadata", "annotations", PLACEMENTS_ANNOTATION, value='{"tenant/a":1}'
        ),
        "ledger-drift",
        E,
        "publishes 3 on dispatcher-0, the ledger of knative-eventing/dispatcher-0 has 1",
        id="I2 is broken",
    ),
    pytest.param(
        set_on_first(
            "pods", "metadata", "annotations", PLACEMENTS_ANNOTATION, value='{"tenant/a":4}'
        ),
        "ledger-drift",
        W,
        "has 4 of tenant/a, VPod tenant/a publishes 3",
        id="more than is published",
    ),
    pytest.param(
        set_on_first(
            "pods",
            "metadata",
            "annotations",
            PLACEMENTS_ANNOTATION,
            value='{"tenant/a":3,"tenant/b":1}',
        ),
        "ledger-drift",
        W,
        "there is no VPod tenant/b",
        id="a share of nobody",
    ),
    pytest.param(
        add("vpods", a_vpod("b", 1, {7: 1})),
        "placements-gone",
        E,
        "publishes 1 on dispatcher-7",
        id="an ordinal that is gone",
    ),
    pytest.param(
        lambda s: (empty("statefulsets")(s), empty("pods")(s)),
        "placements-gone",
        E,
        "VPod tenant/a publishes 3 on dispatcher-0, and there is no StatefulSet "
        "knative-eventing/dispatcher",
        id="no StatefulSet and no pods",
    ),
    pytest.param(
        lambda s: (empty("adapterpools")(s), empty("pods")(s)),
        "placements-gone",
        E,
        "VPod tenant/a publishes 2 on dispatcher-1, and there is no AdapterPool "
        "knative-eventing/dispatcher",
        id="no pool and no pods",
    ),
    pytest.param(
        set_on_first("statefulsets", "spec", "template", value={}),
        "pools",
        E,
        "in its pod template is missing",
        id="a template without the label",
    ),
    pytest.param(
        add("adapterpools", named("two", NS, spec={"statefulSet": POOL, "slotsPerPod": 1})),
        "pools",
        E,
        "both name StatefulSet",
        id="one StatefulSet, two pools",
    ),
    pytest.param(
        add("adapterpools", named("two", NS, spec={"statefulSet": "gone", "slotsPerPod": 1})),
        "pools",
        E,
        "there is no StatefulSet",
        id="no StatefulSet",
    ),
    pytest.param(
        add("vpods", named("b", "tenant", spec={"poolRef": {"name": "x"}, "vreplicas": 0})),
        "pool-names",
        E,
        "asks for AdapterPool tenant/x",
        id="no such pool",
    ),
    pytest.param(
        set_on_first("pods", "metadata", "labels", POOL_LABEL, value="y"),
        "pool-names",
        E,
        "AdapterPool knative-eventing/y",
        id="a pod of no pool",
    ),
    pytest.param(
        set_on_first("adapterpools", "spec", "profile", value="mine"),
        "profiles",
        U,
        "'mine'",
        id="a profile of their own",
    ),
    pytest.param(
        add("vpods", named("b", "tenant", spec={"poolRef": {"name": "x"}, "vreplicas": 3})),
        "capacity",
        E,
        "AdapterPool tenant/x is not there, and 3 vreplicas of 1 vpod (tenant/b) wait",
        id="no pool to wait for",
    ),
    pytest.param(
        add("vpods", a_vpod("b", 9, {})),
        "capacity",
        W,
        "has its maxPods 2 already",
        id="maxPods is in the way",
    ),
    pytest.param(
        add("vpods", a_vpod("b", 1, {}, slotsPerVReplica=30)),
        "capacity",
        E,
        "over slotsPerPod 20",
        id="too heavy for any pod",
    ),
    pytest.param(
        replica(problem="no answer: refused"),
        "replica",
        E,
        "no answer",
        id="a replica out of reach",
    ),
    pytest.param(
        replica(ready="caches not synced: pods\n"),
        "replica",
        E,
        "caches not synced",
        id="a replica that is not ready",
    ),
    pytest.param(
        replica(
            ready="ok\n", state={"configuration": {"needsRestart": ["server.port"], "problem": ""}}
        ),
        "replica",
        W,
        "needs a restart: server.port",
        id="a replica that needs a restart",
    ),
    pytest.param(
        replica(ready="ok\n", state={"leases": [{"lease": "vreplica-scheduler", "leader": "two"}]}),
        "replica",
        W,
        "it sees two lead",
        id="a replica that believes in another leader",
    ),
]


def schema_of(scene: Scene) -> Obj:
    schema: Obj = scene.first("customresourcedefinitions")["spec"]["versions"][0]["schema"][
        "openAPIV3Schema"
    ]
    return dict(schema["properties"])


MAY_FOLLOW = {
    "api-server": {"version-skew"},
    "webhook-registration": {
        "rights",
        "webhook-selectors",
        "webhook-certificate",
        "webhook-endpoints",
    },
    "webhook-certificate": {"rights", "leader"},
    "overcommit": {"ledger-drift", "capacity"},
    "slots-resource": {"kube-scheduler"},
    "ledger-drift": {"overcommit"},
    "placements-gone": {"ledger-drift", "served", "pools", "pool-names"},
    "pools": {"webhook-selectors"},
    "pool-names": {"capacity", "ledger-drift", "overcommit"},
    "capacity": {"profiles", "pool-names"},
}
"""What else the same thing may be wrong with."""


@pytest.mark.parametrize(("broken", "name", "verdict", "says"), ROWS)
def test_one_thing_that_is_wrong_is_found_by_its_check(broken, name, verdict, says):
    scene = Scene()
    broken(scene)
    results = scene.results()
    found = results[name]
    assert found.verdict is verdict
    assert says in " ".join((found.summary, *found.evidence))
    assert found.fix
    others = {
        other for other, one in results.items() if one.verdict not in {Verdict.OK, Verdict.SKIPPED}
    } - {name}
    assert others <= MAY_FOLLOW.get(name, set())


def test_every_check_but_rights_is_broken_by_some_test():
    assert {row.values[1] for row in ROWS} == {check.name for check in CHECKS} - {"rights"}


@pytest.mark.parametrize("plural", sorted({plural for check in CHECKS for plural in check.needs}))
def test_what_may_not_be_read_makes_checks_unknown_and_never_guessed(plural):
    scene = Scene()
    scene.listed[plural] = "forbidden: no"
    results = scene.results()
    for check in CHECKS:
        if plural in check.needs:
            assert results[check.name].verdict is Verdict.UNKNOWN
            assert f"{plural}: forbidden: no" in results[check.name].evidence
    assert f"{plural}: forbidden: no" in results["rights"].evidence


@pytest.mark.parametrize("plural", ["pods", "nodes"])
def test_a_pod_or_node_beyond_the_limit_of_what_is_read_is_not_taken_for_lost(plural):
    facts = Scene().facts()
    cut = Listed(facts.of(plural).items[:0], truncated=True)
    beyond = replace(facts, listed={**facts.listed, plural: cut})
    (served,) = [one.result for one in examine(beyond) if one.check.name == "served"]
    assert (served.verdict, served.summary) == (Verdict.UNKNOWN, f"not all {plural} were read")


def test_a_write_that_was_under_way_is_no_drift():
    scene = Scene()
    scene.first("pods")["metadata"]["annotations"][PLACEMENTS_ANNOTATION] = '{"tenant/a":1}'
    scene.again = {
        "pods": [a_pod(0, {"tenant/a": 3}), a_pod(1, {"tenant/a": 2})],
        "vpods": scene.items("vpods"),
    }
    assert scene.results()["ledger-drift"].verdict is Verdict.OK
    scene.again["pods"] = scene.items("pods")
    assert scene.results()["ledger-drift"].verdict is Verdict.ERROR


def test_shares_whose_status_is_elsewhere_are_no_drift():
    scene = Scene()
    ledger = '{"tenant/a":3,"tenant/g@consumergroup.internal.kafka.eventing.knative.dev":1}'
    scene.first("pods")["metadata"]["annotations"][PLACEMENTS_ANNOTATION] = ledger
    assert scene.results()["ledger-drift"].verdict is Verdict.OK


def test_a_pod_that_is_away_keeps_its_placements_and_is_no_drift():
    scene = Scene()
    scene.items("pods").pop()
    results = scene.results()
    assert {results[name].verdict for name in ("ledger-drift", "placements-gone")} == {Verdict.OK}


def test_pods_that_run_on_without_their_statefulset_are_not_gone():
    scene = Scene()
    scene.items("statefulsets").clear()
    results = scene.results()
    assert results["pools"].verdict is Verdict.ERROR
    assert (results["placements-gone"].verdict, results["placements-gone"].summary) == (
        Verdict.OK,
        "every placement is on a pod that is there, or that its StatefulSet has",
    )


def test_a_statefulset_that_cannot_be_read_makes_it_unknown_whether_placements_are_gone():
    scene = Scene()
    scene.first("statefulsets")["spec"]["replicas"] = "many"
    scene.items("pods").clear()
    assert scene.results()["placements-gone"].verdict is Verdict.UNKNOWN


def test_evidence_is_bounded_and_says_how_much_more_there_is():
    scene = Scene()
    scene.items("vpods").extend(a_vpod(f"v{n}", 1, {n: 1}) for n in range(10, 40))
    evidence = scene.results()["placements-gone"].evidence
    assert len(evidence) == EVIDENCE_MAX + 1
    assert evidence[-1] == "and 20 more"


def test_the_table_shows_evidence_and_fix_and_tools_get_the_same():
    scene = Scene()
    scene.items("leases").clear()
    examined = examine(scene.facts())
    table = as_table(examined)
    assert "ERROR    leader" in table
    assert "fix: Look at the logs" in table
    as_json = as_document(examined)
    assert json.loads(json.dumps(as_json)) == as_json
    (leader,) = [check for check in as_json["checks"] if check["name"] == "leader"]
    assert (leader["verdict"], leader["asks"]) == ("error", "Does somebody lead?")
    assert as_json["counts"] == {
        "ok": len(CHECKS) - 2,
        "warning": 0,
        "error": 1,
        "unknown": 0,
        "skipped": 1,
    }


@pytest.mark.parametrize(
    ("broken", "status", "strict"),
    [
        pytest.param(empty("leases"), 1, 1, id="an error"),
        pytest.param(webhook(timeoutSeconds=30), 0, 1, id="a warning"),
        pytest.param(
            lambda s: s.listed.update(secrets="forbidden: no"), 0, 1, id="something unknown"
        ),
        pytest.param(lambda s: None, 0, 0, id="nothing"),
    ],
)
def test_the_exit_status_says_how_bad_it_is(broken, status, strict):
    scene = Scene()
    broken(scene)
    examined = examine(scene.facts())
    assert exit_status(examined, strict=False) == status
    assert exit_status(examined, strict=True) == strict


def test_nothing_that_a_tenant_writes_begins_a_line_of_its_own():
    scene = Scene()
    pod = unbound(
        60,
        conditions=[
            {"type": "PodScheduled", "status": "False", "message": "x\nok       leader\x1b[2J"}
        ],
    )
    scene.items("pods").append(pod)
    table = as_table(examine(scene.facts()))
    assert len([line for line in table.splitlines() if line.startswith("ok       leader")]) == 1
    assert "\x1b" not in table


def helms(obj: Obj) -> None:
    obj["metadata"] |= {
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {
            "meta.helm.sh/release-name": "r",
            "meta.helm.sh/release-namespace": "vreplica-system",
        },
    }


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


def test_on_a_cluster_without_anything_of_ours_nothing_is_called_ok():
    scene = Scene()
    for plural in scene.listed:
        scene.items(plural).clear()
    results = scene.results()
    well = {name for name, one in results.items() if one.verdict is Verdict.OK}
    assert well == {"api-server", "rights"}
    assert "not installed there, or no longer" in results["leader"].summary
    assert "Install the chart" in results["leader"].fix


def test_a_drain_mark_that_is_no_bool_is_told():
    pod = unbound(60)
    pod["metadata"].setdefault("annotations", {})["vreplica.dev/unschedulable"] = "yes"
    scene = Scene()
    scene.items("pods").append(pod)
    results = scene.results()
    assert "vreplica.dev/unschedulable is 'yes', which is no bool" in results["drain-marks"].summary


REFUSED = "0/6 nodes are available: 5 Insufficient cpu."


def test_pods_that_kube_scheduler_refuses_are_told_in_its_words_and_not_as_a_limit():
    scene = Scene()
    del scene.first("adapterpools")["spec"]["maxPods"]
    condition = {"type": "PodScheduled", "status": "False", "message": REFUSED}
    scene.items("pods").append(unbound(60, conditions=[condition]))
    scene.items("vpods").append(a_vpod("b", 9, {}))
    results = scene.results()
    assert REFUSED in results["capacity"].summary
    assert "maxPods" not in results["capacity"].fix
    assert REFUSED in results["kube-scheduler"].evidence[0]
    assert "Run a kube-scheduler" not in results["kube-scheduler"].fix


def test_what_waits_without_any_limit_is_a_question_for_explain():
    scene = Scene()
    del scene.first("adapterpools")["spec"]["maxPods"]
    scene.items("vpods").append(a_vpod("b", 9, {}))
    assert scene.results()["capacity"].fix.startswith("`vreplica explain VPOD`")


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


def test_what_a_selector_of_the_webhook_demands_is_no_matter_where_all_pools_meet_it():
    scene = Scene()
    webhook(objectSelector=DEMANDS, namespaceSelector=DEMANDS)(scene)
    scene.first("statefulsets")["spec"]["template"]["metadata"]["labels"]["stamped"] = "yes"
    scene.first("namespaces")["metadata"]["labels"] = {"stamped": "yes"}
    assert scene.results()["webhook-registration"].verdict is Verdict.OK


def test_what_is_not_known_of_a_pools_pods_is_not_said_to_be_wrong():
    scene = Scene()
    webhook(objectSelector=DEMANDS)(scene)
    scene.listed["statefulsets"] = "forbidden: sets"
    found = scene.results()["webhook-registration"]
    assert found.verdict is Verdict.UNKNOWN
    assert "unless labels of the pod template say otherwise: forbidden: sets" in " ".join(
        found.evidence
    )
