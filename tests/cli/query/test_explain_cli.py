"""``vreplica explain`` and the what-if of ``vreplica plan``, from files: what is printed, and how
the commands end.
"""

import io
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from extender.cli.main import main
from extender.cli.query.explain_tables import _history, summed_up
from extender.cli.query.subject import Subject, subject_from
from extender.model.errors import InvalidObject
from extender.model.foreign_kinds import PRESETS
from extender.model.names import POOL_LABEL, ZONE_LABEL
from extender.model.reading import Json
from tests.cli.query.test_plan_cli import POOL, STATEFUL_SET, a_pod, a_vpod

ROOT = Path(__file__).parents[3]


def a_node(name: str, zone: str = "z", **spec: object) -> dict[str, object]:
    metadata = {"name": name, "labels": {ZONE_LABEL: zone}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


CLUSTER = [
    POOL,
    STATEFUL_SET,
    a_node("n0"),
    a_node("n1", "y"),
    a_pod(0, node="n0"),
    a_pod(1, node="n1"),
]


@pytest.fixture
def run(tmp_path, capsys):
    """Run a command on these documents: (exit status, standard output, standard error)."""

    def run(command: str, *arguments: str, documents: tuple[object, ...]) -> tuple[int, str, str]:
        path = tmp_path / "in.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        status = main([command, *arguments, "-f", str(path)])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_a_vpod_that_waits_is_explained_in_words(run):
    status, out, _ = run("explain", "t/a", documents=(*CLUSTER, a_vpod("a", 10)))
    assert status == 0
    for line in (
        "VPod t/a in pool k/d, profile default",
        "2 of 10 vreplicas are not placed (InsufficientSlots): 0/2 pods have room: 2 no",
        "what would place it",
        "one pod more",
        "slotsPerPod 4 to 5",
        "candidates",
        "lost with a zone: y 4 (50 %), z 4 (50 %)",
    ):
        assert line in out


def test_a_vpod_whose_pool_does_not_exist_is_explained_by_that_and_by_no_profile(run):
    status, out, _ = run("explain", "t/a", documents=(a_vpod("a", 2),))
    assert status == 0
    assert out.startswith("VPod t/a in pool k/d\n")
    assert "AdapterPool k/d does not exist" in out
    assert "profile" not in out


def test_a_pod_whose_pool_does_not_exist_has_no_profile_either(run):
    pod = a_pod(0, node="n0")
    pod["metadata"] = {"name": "d-0", "namespace": "k", "labels": {POOL_LABEL: "d"}}
    status, out, _ = run("explain", "pod/k/d-0", documents=(a_node("n0"), pod))
    assert status == 0
    assert out.startswith("Pod k/d-0 of pool k/d\n")
    assert "takes no new vreplicas: its AdapterPool does not" in out
    assert "profile" not in out


def test_pods_that_kube_scheduler_has_refused_are_named_as_the_cause(run):
    pending = a_pod(1)
    pending["spec"] = {}
    said = {
        "type": "PodScheduled",
        "status": "False",
        "message": "0/2 nodes are available: 2 Insufficient cpu.",
    }
    pending["status"] = {"conditions": [said]}
    documents = (POOL, STATEFUL_SET, a_node("n0"), a_pod(0, node="n0"), pending, a_vpod("a", 8))
    _, out, _ = run("explain", "t/a", documents=documents)
    flat = " ".join(out.split())
    assert (
        "1 of its pods waits for a node; kube-scheduler finds none: '0/2 nodes are available"
        in flat
    )
    assert "by itself" not in flat


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(("t/a",), id="NAMESPACE/NAME"),
        pytest.param(("a",), id="the only one of that name"),
        pytest.param(("a", "-n", "t"), id="-n"),
        pytest.param(("vpod/a", "-n", "t"), id="kind and -n"),
        pytest.param(("vpod/t/a",), id="kind, namespace and name"),
        pytest.param(("vpods/a",), id="plural"),
    ],
)
def test_a_vpod_may_be_named_as_kubectl_names_it(run, name):
    status, out, err = run("explain", *name, "-o", "json", documents=(*CLUSTER, a_vpod("a", 1)))
    assert (status, err) == (0, "")
    assert json.loads(out)["name"] == "t/a"


def test_yaml_says_what_json_says(run):
    documents = (*CLUSTER, a_vpod("a", 10))
    _, as_json, _ = run("explain", "t/a", "-o", "json", documents=documents)
    _, as_yaml, _ = run("explain", "t/a", "-o", "yaml", documents=documents)
    assert yaml.safe_load(as_yaml) == json.loads(as_json)


def test_a_pod_that_no_node_takes_is_told_what_would_let_one(run):
    nodes = (a_node("n0", unschedulable=True), a_node("n1", "y", unschedulable=True))
    pods = (a_pod(0, node="n0"), a_pod(1, node=""))
    status, out, _ = run("explain", "pod/d-1", documents=(POOL, STATEFUL_SET, *nodes, *pods))
    assert status == 0
    assert "Pending: 0/2 nodes take it" in out
    assert "what would let a node take it" in out
    assert "2. uncordon n1 (Node n1): then n1 would" in out


def test_what_would_place_it_comes_before_how_it_came_about_and_names_are_whole(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    vpod = a_vpod("a", 10, [{"podName": "d-0", "vreplicas": 2}])
    _, out, _ = run("explain", "t/a", documents=(*CLUSTER, vpod))
    assert out.index("what would place it") < out.index("why\n") < out.index("candidates")
    assert "POD NODE ZONE FREE HAS VERDICT WHY NO MORE" in out
    assert "SCORE" not in out, "the default profile has no scores"
    assert max(map(len, out.splitlines())) <= 80


def test_many_steps_of_one_kind_are_summed_up():
    kept = [f"kept: 3 on d-{ordinal}" for ordinal in range(100)]
    steps = [
        *kept,
        "added: 2 on d-100",
        "moved away: 1 on d-7 (uncovered)",
        "moved away: 2 on d-8 (uncovered)",
    ]
    assert summed_up([*steps, "another sentence"]) == [
        "kept: 300 on 100 pods",
        "added: 2 on 1 pod",
        "moved away: 3 on 2 pods (uncovered)",
        "another sentence",
    ]


def test_the_history_has_times_of_day_short_identities_and_no_empty_columns():
    told = {
        "at": f"{datetime.now(UTC):%Y-%m-%d}T21:39:05Z",
        "by": "vm_d95bafc8f2a4d27bdcf4bb99f4bea973",
        "why": "",
        "text": "5 placed",
    }
    console = Console(width=80, file=io.StringIO(), record=True)
    _history(console, [told])
    assert [line.split() for line in console.export_text().splitlines()[1:]] == [
        ["AT", "(UTC)", "BY", "DECIDED"],
        ["21:39:05", "vm_d95baf\u20269f4bea973", "5", "placed"],
    ]


def test_a_pod_is_explained(run):
    vpod = a_vpod("a", 2, [{"podName": "d-0", "vreplicas": 2}])
    status, out, _ = run("explain", "pod/d-0", documents=(*CLUSTER, vpod))
    assert status == 0
    assert "it stands on node n0 in zone z; 2 of 4 slots are free" in out
    assert "2 (100 %)" in out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("t/b", "vpod t/b does not exist; known are t/a", id="another name"),
        pytest.param(
            "zzz", "no vpod or adapter pod is named zzz; the vpods are t/a, u/a", id="no such name"
        ),
        pytest.param("a", "a could be vpod/t/a, vpod/u/a: say which", id="two of that name"),
        pytest.param("pod/d-7", "no adapter pod is named d-7", id="a pod"),
    ],
)
def test_what_is_not_there_ends_with_3(run, name, said):
    documents = (*CLUSTER, a_vpod("a", 1), a_vpod("a", 1, namespace="u"))
    status, out, err = run("explain", name, documents=documents)
    assert (status, out) == (3, "")
    assert err.startswith(f"vreplica: {said}")


def a_foreign_object(name: str, kind: str, api_version: str, number: dict[str, int]) -> Json:
    metadata = {"name": name, "namespace": "t"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": number}


FOREIGN = (
    {**POOL, "spec": {**POOL["spec"], "sources": [{"preset": name} for name in PRESETS]}},
    *CLUSTER[1:],
    a_foreign_object(
        "chan", "ConsumerGroup", "internal.kafka.eventing.knative.dev/v1alpha1", {"replicas": 2}
    ),
    a_foreign_object(
        "both", "ConsumerGroup", "internal.kafka.eventing.knative.dev/v1alpha1", {"replicas": 2}
    ),
    a_foreign_object("both", "KafkaSource", "sources.knative.dev/v1", {"consumers": 2}),
)


@pytest.mark.parametrize("name", ["t/chan", "vpod/t/chan", "chan"])
def test_a_foreign_object_is_explained_without_its_kind_where_no_other_has_its_name(run, name):
    status, out, _ = run("explain", name, documents=FOREIGN)
    assert status == 0
    assert "VPod t/chan@consumergroup.internal.kafka.eventing.knative.dev in pool k/d" in out


@pytest.mark.parametrize("name", ["t/both", "vpod/t/both"])
def test_where_two_foreign_objects_have_the_name_the_kind_must_be_given(run, name):
    status, _, err = run("explain", name, documents=FOREIGN)
    assert status == 3
    group = "t/both@consumergroup.internal.kafka.eventing.knative.dev"
    full = "t/both@kafkasource.sources.knative.dev"
    assert err.startswith(f"vreplica: vpod t/both could be {group} or {full}: say which")
    assert run("explain", full, documents=FOREIGN)[0] == 0


@pytest.mark.parametrize(("vreplicas", "status"), [(8, 0), (9, 4)])
def test_check_says_by_the_exit_status_whether_something_waits(run, vreplicas, status):
    documents = (*CLUSTER, a_vpod("a", vreplicas))
    assert run("explain", "t/a", "--check", documents=documents)[0] == status
    assert run("explain", "t/a", documents=documents)[0] == 0
    assert run("plan", "--check", documents=documents)[0] == status


@pytest.mark.parametrize("text", ["", "a/b/c/d", "/a", "a/", "node/x/y", "pod/t/"])
def test_a_name_that_cannot_be_one(text):
    with pytest.raises(InvalidObject, match="is not NAME, NAMESPACE/NAME"):
        subject_from(text, "")


def test_a_namespace_that_contradicts_itself():
    with pytest.raises(InvalidObject):
        subject_from("t/a", "u")
    assert subject_from("t/a", "t") == Subject("", "t", "a")


def test_a_drain_is_diffed_against_today(run):
    vpod = a_vpod("a", 3, [{"podName": "d-0", "vreplicas": 2}, {"podName": "d-1", "vreplicas": 1}])
    status, out, _ = run("plan", "--drain", "node/n0", "-o", "json", documents=(*CLUSTER, vpod))
    answer = json.loads(out)
    assert (status, answer["summary"]["moved"]) == (0, 2)
    assert answer["vpods"][0]["after"] == {"d-1": 3}


def test_a_difference_as_tables(run):
    vpod = a_vpod("a", 3, [{"podName": "d-0", "vreplicas": 2}, {"podName": "d-1", "vreplicas": 1}])
    _, out, _ = run("plan", "--drain", "zone/z", documents=(*CLUSTER, vpod))
    assert "2 vreplicas would move; 1 vpod would change; without a place: 0; pods: 2" in out
    assert "-2 d-0  +2 d-1" in out
    assert "2 -> 0 vreplicas" in out


A_NODE_FAILS = "pool k/d: 1 pod and 2 vreplicas would be away; "
NEVER = {**POOL, "spec": {**POOL["spec"], "rescheduleAfterSeconds": None}}


@pytest.mark.parametrize(
    ("pool", "summary", "told"),
    [
        pytest.param(
            POOL,
            "2 vreplicas would move",
            "after 300 s what has room elsewhere is placed there",
            id="after 300 s, unless the pool says otherwise",
        ),
        pytest.param(
            NEVER, "nothing would move", "nothing moves", id="a pool that gives nothing up"
        ),
    ],
)
def test_a_node_that_fails_is_told_in_words(run, pool, summary: str, told: str):
    vpod = a_vpod("a", 3, [{"podName": "d-0", "vreplicas": 2}, {"podName": "d-1", "vreplicas": 1}])
    _, out, _ = run("plan", "--fail", "n0", documents=(pool, *CLUSTER[1:], vpod))
    flat = " ".join(out.split())
    assert summary in flat
    assert A_NODE_FAILS + told in flat


def test_vpods_more_and_larger_pods(run):
    arguments = ("--add-vpods", "3x4", "--set", "slotsPerPod=6", "-o", "json")
    _, out, _ = run("plan", *arguments, documents=(*CLUSTER, a_vpod("a", 1)))
    answer = json.loads(out)
    assert [row["name"] for row in answer["vpods"]] == [
        "what-if/what-if-3",
        "what-if/what-if-1",
        "what-if/what-if-2",
    ]
    assert answer["summary"]["unplacedAfter"] == 1


def test_the_autoscaler_may_be_counted_in(run):
    _, out, _ = run("plan", "--add-vpods", "3x4", "--autoscale", "-o", "json", documents=CLUSTER)
    summary = json.loads(out)["summary"]
    assert (summary["podsBefore"], summary["podsAfter"], summary["unplacedAfter"]) == (2, 3, 0)


def test_a_new_tenant_may_be_thought_of(run):
    pool = {**POOL, "spec": {**POOL["spec"], "maxPods": 2, "tenancy": {"defaultGuarantee": 1}}}
    has = [{"podName": "d-0", "vreplicas": 4}, {"podName": "d-1", "vreplicas": 4}]
    documents = (pool, *CLUSTER[1:], a_vpod("a", 9, has))
    _, out, _ = run("plan", "--add-tenant", "new=6", documents=documents)
    flat = " ".join(out.split())
    assert "pool k/d: tenant new would use 4 of the 6 slots that it asks for" in flat
    assert "pool k/d: 4 slots would be given back by t (4)" in flat
    assert "tenants of k/d that change" in flat
    assert re.search(r"new \(new\) │ +1 │ +│ +4 │ 0 -> 4 │ +2 ", flat), flat
    assert re.search(r"t │ +1 │ +│ +4 │ 8 -> 4 │ +5 ", flat), flat
    status, _, err = run("plan", "--add-tenant", "t=6", documents=documents)
    assert (status, "tenant t has vpods in AdapterPool k/d already" in err) == (1, True), err
    status, _, err = run("plan", "--add-tenant", "new=6", documents=CLUSTER)
    assert (status, "AdapterPool k/d has no spec.tenancy" in err) == (1, True), err


def test_without_a_change_plan_prints_what_it_always_has(run):
    _, out, _ = run("plan", "--profile", "ha", "-o", "json", documents=(*CLUSTER, a_vpod("a", 1)))
    assert set(json.loads(out)) == {"vpods", "pools"}
    _, out, _ = run(
        "plan", "--profile", "ha", "--diff", "-o", "json", documents=(*CLUSTER, a_vpod("a", 1))
    )
    assert json.loads(out)["pools"][0]["profileAfter"] == "ha"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(
            ("--fail", "n9"),
            "fail: n9 is no pod, node or zone that is known",
            id="nothing of that name",
        ),
        pytest.param(
            ("--drain", "node/n9"), "node n9 is not known (known: n0, n1)", id="no such node"
        ),
        pytest.param(
            ("--pool", "k/x", "--diff"), "pool: k/x is not known (known: k/d)", id="no such pool"
        ),
        pytest.param(
            ("--server", "http://x"),
            "--server: does not go together with -f",
            id="two places to look",
        ),
    ],
)
def test_what_plan_cannot_do_is_one_line(run, arguments, said):
    status, out, err = run("plan", *arguments, documents=CLUSTER)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert said in err


ODD = {
    **POOL,
    "metadata": {"name": "odd", "namespace": "k"},
    "spec": {**POOL["spec"], "profile": "mine"},
}


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("explain", "t/a"), id="explain"),
        pytest.param(("plan", "--diff", "--pool", "k/d"), id="plan of one pool"),
    ],
)
def test_another_pools_profile_that_is_not_known_is_its_own_matter(run, arguments):
    status, _, err = run(*arguments, documents=(*CLUSTER, ODD, a_vpod("a", 1)))
    assert (status, err) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("plan",), id="a round"),
        pytest.param(("plan", "--diff"), id="what if"),
        pytest.param(("plan", "--diff", "--pool", "k/odd"), id="of that pool"),
    ],
)
def test_a_profile_that_is_not_known_is_told_with_its_pool(run, arguments):
    status, _, err = run(*arguments, documents=(*CLUSTER, ODD))
    assert status == 1
    assert "AdapterPool k/odd: spec.profile: 'mine' is not known (known: default" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(
            ("--drain", "n/0"), "'n/0' is not pod/NAME, node/NAME or zone/NAME", id="no kind"
        ),
        pytest.param(
            ("--set", "replicas=3"), "'replicas' cannot be set (can be: maxPods", id="no such field"
        ),
    ],
)
def test_options_that_mean_nothing_are_usage(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["plan", "-f", "x", *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--add-vpods", "many"),
        ("--add-vpods", "0"),
        ("--set", "slotsPerPod"),
        ("--set", "slotsPerPod=-1"),
    ],
)
def test_options_that_are_no_numbers_are_usage(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["plan", "-f", "x", *arguments])
    assert ended.value.code == 2
    assert "such as" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(
            ("explain", "t/a"), "without any cluster try `vreplica run`", id="no kubeconfig"
        ),
        pytest.param(
            ("plan", "--drain", "node/x"), "or --server URL, a running service", id="nor for plan"
        ),
        pytest.param(
            ("explain", "t/a", "--server", "http://127.0.0.1:1"),
            "kubectl port-forward, without --server the cluster itself is read",
            id="no service",
        ),
    ],
)
def test_the_usual_first_mistakes_say_what_to_do(arguments, said, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(list(arguments)) == 1
    # On a slow machine, a line of progress stands before it.
    errors = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("vreplica: ")
    ]
    assert len(errors) == 1
    assert said in errors[0]


def test_what_takes_long_says_so(run, monkeypatch):
    monkeypatch.setattr("extender.cli.terminal.progress.FIRST_AFTER_S", 0.0)
    _, _, err = run("explain", "t/a", documents=(*CLUSTER, a_vpod("a", 9)))
    assert err == "vreplica explain: reading and trying changes ...\n"
