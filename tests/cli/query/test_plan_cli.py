"""``vreplica plan``: files in, placements out; a wrong file is one line that names the object and
the field.
"""

import io
import json
import sys
from typing import Any

import pytest
import yaml

from extender.cli.main import main
from extender.model.names import API_VERSION

Json = dict[str, object]

POOL: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": "AdapterPool",
    "metadata": {"name": "d", "namespace": "k"},
    "spec": {"statefulSet": "d", "slotsPerPod": 4},
}
STATEFUL_SET = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "d", "namespace": "k"},
    "spec": {"replicas": 2},
}


def a_pod(ordinal: int, ledger: str | None = None, node: str = "n", **annotations: str) -> Json:
    if ledger is not None:
        annotations = {**annotations, "vreplica.dev/placements": ledger}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"d-{ordinal}", "namespace": "k", "annotations": annotations},
        "spec": {"nodeName": node},
    }


def a_vpod(
    name: str, vreplicas: object, placements: object = None, namespace: str = "t", **spec: object
) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "VPod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"poolRef": {"namespace": "k", "name": "d"}, "vreplicas": vreplicas, **spec},
        "status": {"placements": placements or []},
    }


CLUSTER = [POOL, STATEFUL_SET, a_pod(0), a_pod(1)]


@pytest.fixture
def plan(tmp_path, capsys):
    def run(*documents: object, options: tuple[str, ...] = ("-o", "json")):
        path = tmp_path / "in.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        return run_files(str(path), options=options)

    def run_files(*files: str, options: tuple[str, ...] = ("-o", "json")):
        arguments = [part for name in files for part in ("-f", name)]
        status = main(["plan", *arguments, *options])
        out, err = capsys.readouterr()
        assert status == 0, err
        return json.loads(out) if "json" in options else out

    run.files = run_files  # type: ignore[attr-defined]
    return run


@pytest.fixture
def refused(tmp_path, capsys):
    def run(content: bytes | str) -> str:
        path = tmp_path / "bad.yaml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        status = main(["plan", "-f", str(path)])
        out, err = map(str, capsys.readouterr())
        assert status == 1
        assert out == ""
        assert err.count("\n") == 1, "one line"
        assert err.startswith("vreplica: ")
        return err.removeprefix("vreplica: ").replace(str(path), "FILE").strip()

    return run


def test_the_schema_is_the_documented_one(plan):
    result = plan(*CLUSTER, a_vpod("a", 3), options=("-o", "json", "--autoscale", "--compact"))
    assert result == {
        "vpods": [
            {
                "namespace": "t",
                "name": "a",
                "placements": [
                    {"podName": "d-0", "vreplicas": 2},
                    {"podName": "d-1", "vreplicas": 1},
                ],
                "unplaced": 0,
                "reasons": [],
                "settled": {
                    "placements": [
                        {"podName": "d-0", "vreplicas": 2},
                        {"podName": "d-1", "vreplicas": 1},
                    ],
                    "unplaced": 0,
                },
            }
        ],
        "pools": [
            {
                "namespace": "k",
                "name": "d",
                "replicas": 2,
                "wantedReplicas": 1,
                "freeSlots": 5,
                "evictions": [
                    {"vpod": "t/a", "podName": "d-1", "vreplicas": 1, "reason": "Compaction"}
                ],
                "unservedVReplicas": 0,
            }
        ],
    }


def crowded(**spec: object) -> list[Json]:
    """Each of two pods has one of four slots left, and a vreplica of two slots waits."""
    return [
        {**POOL, "spec": {**POOL["spec"], **spec}},
        STATEFUL_SET,
        a_pod(0, '{"t/a":3}'),
        a_pod(1, '{"t/b":3}'),
        a_vpod("a", 3, [{"podName": "d-0", "vreplicas": 3}]),
        a_vpod("b", 3, [{"podName": "d-1", "vreplicas": 3}]),
        a_vpod("waits", 1, slotsPerVReplica=2),
    ]


ROOM = [{"vpod": "t/a", "podName": "d-0", "vreplicas": 1, "reason": "MakeRoom"}]


def test_moves_that_make_room_are_shown_without_being_asked_for(plan):
    (pool,) = plan(*crowded(maxPods=2))["pools"]
    assert pool["evictions"] == ROOM


def test_a_pool_that_grows_makes_no_room(plan):
    (pool,) = plan(*crowded(), options=("-o", "json", "--autoscale"))["pools"]
    assert (pool["wantedReplicas"], pool["evictions"]) == (3, [])


def test_a_pool_that_makes_room_before_it_grows_does_not_grow(plan):
    documents = crowded(rebalance={"makeRoomBeforeGrowing": True})
    result = plan(*documents, options=("-o", "json", "--autoscale"))
    (pool,) = result["pools"]
    assert (pool["wantedReplicas"], pool["evictions"]) == (2, ROOM)
    assert {row["name"]: row["settled"] for row in result["vpods"]} == {
        "a": placed(**{"d-0": 2, "d-1": 1}),
        "b": placed(**{"d-1": 3}),
        "waits": placed(**{"d-0": 1}),
    }


def placed(**vreplicas: int) -> Json:
    placements = [{"podName": name, "vreplicas": count} for name, count in vreplicas.items()]
    return {"placements": placements, "unplaced": 0}


def test_vpods_are_taken_in_order_of_namespace_and_name(plan):
    result = plan(*CLUSTER, a_vpod("b", 5), a_vpod("a", 5, namespace="z"), a_vpod("a", 1))
    assert [(row["namespace"], row["name"], row["unplaced"]) for row in result["vpods"]] == [
        ("t", "a", 0),
        ("t", "b", 0),
        ("z", "a", 3),
    ]


def test_what_has_no_place_says_why(plan):
    row = plan(*CLUSTER[:3], a_vpod("a", 9))["vpods"][0]
    assert row["unplaced"] == 5
    assert row["reasons"][0] == "InsufficientSlots"


def test_ledgers_on_pods_count_as_reservations(plan):
    result = plan(
        POOL, STATEFUL_SET, a_pod(0, '{"t/other":3}'), a_pod(1, '{"t/a":[1,2]}'), a_vpod("a", 9)
    )
    assert result["pools"][0]["freeSlots"] == 0
    assert result["vpods"][0]["placements"] == [
        {"podName": "d-0", "vreplicas": 1},
        {"podName": "d-1", "vreplicas": 4},
    ]


def test_a_node_that_a_file_shows_decides_whether_its_pods_take_work(plan):
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "spec": {"unschedulable": True},
    }
    assert plan(*CLUSTER, a_vpod("a", 1))["vpods"][0]["unplaced"] == 0
    assert plan(*CLUSTER, node, a_vpod("a", 1))["vpods"][0]["reasons"] == [
        "InsufficientSlots",
        "2 node cordoned",
    ]


def test_a_pool_that_no_file_shows(plan):
    assert plan(a_vpod("a", 1))["vpods"][0]["reasons"] == [
        "PoolNotFound",
        "AdapterPool k/d does not exist",
    ]


def test_a_tenant_whom_the_pool_does_not_select_gets_nothing_and_no_pods(plan):
    pool = {**POOL, "spec": {**POOL["spec"], "namespaceSelector": {"matchLabels": {"x": "y"}}}}
    result = plan(pool, *CLUSTER[1:], a_vpod("a", 40), options=("-o", "json", "--autoscale"))
    assert result["vpods"][0]["reasons"][0] == "TenantNotAllowed"
    assert result["pools"][0]["wantedReplicas"] == 0


def test_autoscale_tells_the_pods_that_are_needed(plan):
    assert plan(*CLUSTER, a_vpod("a", 17))["pools"][0]["wantedReplicas"] == 2
    assert (
        plan(*CLUSTER, a_vpod("a", 17), options=("-o", "json", "--autoscale"))["pools"][0][
            "wantedReplicas"
        ]
        == 5
    )


def test_autoscale_tells_where_vpods_end_once_the_pods_have_come(plan):
    (vpod,) = plan(*CLUSTER, a_vpod("a", 17), options=("-o", "json", "--autoscale"))["vpods"]
    assert vpod["unplaced"] == 9
    assert vpod["settled"]["unplaced"] == 0
    assert sum(share["vreplicas"] for share in vpod["settled"]["placements"]) == 17
    assert {share["podName"] for share in vpod["settled"]["placements"]} == {
        f"d-{n}" for n in range(5)
    }


def test_autoscale_tells_where_objects_of_other_kinds_end_beside_vpods_of_the_same_name(plan):
    pool = {**POOL, "spec": {**POOL["spec"], "sources": [{"preset": "knative-consumergroup"}]}}
    group = {
        "apiVersion": "internal.kafka.eventing.knative.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": "v", "namespace": "t"},
        "spec": {"replicas": 7},
    }
    documents = [pool, *CLUSTER[1:], group, a_vpod("v", 5)]
    rows = plan(*documents, options=("--autoscale", "-o", "json"))["vpods"]
    settled = {row.get("source"): row["settled"] for row in rows}
    assert [one["unplaced"] for one in settled.values()] == [0, 0]
    assert {
        source: sum(share["vreplicas"] for share in one["placements"])
        for source, one in settled.items()
    } == {"consumergroup.internal.kafka.eventing.knative.dev": 7, None: 5}
    assert "t/v@consumergroup" in plan(*documents, options=())


def test_autoscale_up_to_max_pods_tells_what_still_has_no_place(plan):
    pool = {**POOL, "spec": {**POOL["spec"], "maxPods": 3}}
    (vpod,) = plan(pool, *CLUSTER[1:], a_vpod("a", 17), options=("-o", "json", "--autoscale"))[
        "vpods"
    ]
    assert vpod["settled"]["unplaced"] == 5


class TestWhatIsRead:
    def test_a_list(self, plan):
        listed = {"apiVersion": "v1", "kind": "List", "items": [*CLUSTER, a_vpod("a", 1)]}
        assert plan(listed)["vpods"][0]["unplaced"] == 0

    def test_a_typed_list(self, plan):
        listed = {"apiVersion": API_VERSION, "kind": "VPodList", "items": [a_vpod("a", 1)]}
        assert plan(*CLUSTER, listed)["vpods"][0]["unplaced"] == 0

    def test_json(self, plan, tmp_path):
        path = tmp_path / "all.json"
        path.write_text(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": [*CLUSTER, a_vpod("a", 1)]})
        )
        assert plan.files(str(path))["vpods"][0]["unplaced"] == 0

    def test_several_json_documents(self, plan, tmp_path):
        path = tmp_path / "all.json"
        path.write_text("\n---\n".join(json.dumps(doc) for doc in [*CLUSTER, a_vpod("a", 1)]))
        assert plan.files(str(path))["vpods"][0]["unplaced"] == 0

    def test_several_files(self, plan, tmp_path):
        names = []
        for index, doc in enumerate([*CLUSTER, a_vpod("a", 1)]):
            path = tmp_path / f"{index}.yaml"
            path.write_text(yaml.safe_dump(doc))
            names.append(str(path))
        assert plan.files(*names)["vpods"][0]["unplaced"] == 0

    def test_standard_input(self, plan, monkeypatch):
        text = yaml.safe_dump_all([*CLUSTER, a_vpod("a", 1)]).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        assert plan.files("-")["vpods"][0]["unplaced"] == 0

    def test_nothing(self, plan, tmp_path):
        path = tmp_path / "empty.yaml"
        path.write_text("---\n---\n")
        assert plan.files(str(path)) == {"vpods": [], "pools": []}

    def test_a_table_for_people(self, plan):
        out = plan(*CLUSTER, a_vpod("a", 1), options=("--compact",))
        assert "t/a" in out
        assert "d-0=1" in out

    def test_what_is_free_of_dimensions_stands_beside_free_slots(self, plan):
        pool = {**POOL, "spec": {**POOL["spec"], "capacities": {"cpu": 1000, "memory": 9}}}
        vpod = a_vpod("a", 1, perVReplica={"cpu": 300})
        objects = (pool, STATEFUL_SET, a_pod(0), a_pod(1), vpod)
        (row,) = plan(*objects)["pools"]
        assert row["freeCapacities"] == {"cpu": 1700, "memory": 18}
        out = plan(*objects, options=())
        assert "1,700 cpu" in out
        assert "FREE CAPACITIES" not in plan(*CLUSTER, options=())

    def test_what_plays_no_part_is_told_and_left_out(self, tmp_path, capsys):
        path = tmp_path / "in.yaml"
        path.write_text(
            yaml.safe_dump({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}})
        )
        assert main(["plan", "-f", str(path), "-o", "json"]) == 0
        assert "skipped Service s" in capsys.readouterr().err


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("document", "message"),
        [
            pytest.param(
                a_vpod("a", "8"),
                "VPod t/a: spec.vreplicas: must be an integer from 0",
                id="a count as text",
            ),
            pytest.param(
                a_vpod("a", -1),
                "VPod t/a: spec.vreplicas: must be an integer from 0",
                id="a negative count",
            ),
            pytest.param(a_vpod("a", None), "VPod t/a: spec.vreplicas: is required", id="no count"),
            pytest.param(
                a_vpod("a", 1, slotsPerVReplica=0),
                "VPod t/a: spec.slotsPerVReplica: must be",
                id="weightless",
            ),
            pytest.param(
                a_vpod("a", 1, poolRef={}), "VPod t/a: spec.poolRef.name: is required", id="no pool"
            ),
            pytest.param(
                a_vpod("a", 1, [{"podName": "d-0", "vreplicas": "1"}]),
                "VPod t/a: status.placements[0].vreplicas: must be a count",
                id="a placement as text",
            ),
            pytest.param(
                a_vpod("a", 1, {"d-0": 1}),
                "VPod t/a: status.placements: must be a list",
                id="placements as a mapping",
            ),
            pytest.param(
                a_vpod("a", 1, [{"vreplicas": 1}]),
                "VPod t/a: status.placements[0].podName: is required",
                id="a placement nowhere",
            ),
            pytest.param(
                {**POOL, "spec": {"slotsPerPod": 1}},
                "AdapterPool k/d: spec.statefulSet: is required",
                id="no StatefulSet",
            ),
            pytest.param(
                {**POOL, "spec": {"statefulSet": "d"}},
                "AdapterPool k/d: spec.slotsPerPod: is required",
                id="no slots",
            ),
            pytest.param(
                {**POOL, "spec": []},
                "AdapterPool k/d: spec.statefulSet: is required",
                id="a spec that is a list",
            ),
            pytest.param(
                {**STATEFUL_SET, "spec": {"replicas": 1.5}},
                "StatefulSet k/d: spec.replicas: must be",
                id="half a pod",
            ),
            pytest.param(
                {**POOL, "metadata": {}},
                "FILE: metadata.name: is required for a AdapterPool",
                id="no name",
            ),
            pytest.param(
                {**POOL, "metadata": {"name": 3}},
                "FILE: metadata.name: is required for a AdapterPool",
                id="a number as name",
            ),
            pytest.param(
                {"a": 1}, "FILE: a document without apiVersion and kind", id="no Kubernetes object"
            ),
            pytest.param([1], "FILE: expected a Kubernetes object, found list", id="a list"),
            pytest.param("hello", "FILE: expected a Kubernetes object, found str", id="a word"),
            pytest.param(
                {
                    **a_pod(0),
                    "metadata": {
                        "name": "d-0",
                        "annotations": {"vreplica.dev/placements": {"t/a": 1}},
                    },
                },
                "Pod default/d-0: metadata.annotations.vreplica.dev/placements: must be a string",
                id="a ledger that is not text",
            ),
        ],
    )
    def test_an_object_that_is_wrong(self, refused, document, message):
        assert refused(yaml.safe_dump(document)).startswith(message)

    @pytest.mark.parametrize(
        "doubled",
        [
            pytest.param(POOL, id="AdapterPool k/d"),
            pytest.param(STATEFUL_SET, id="StatefulSet k/d"),
            pytest.param(a_vpod("a", 1), id="VPod t/a"),
            pytest.param(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}, id="Node n"
            ),
            pytest.param(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}},
                id="Namespace n",
            ),
        ],
    )
    def test_an_object_that_is_there_twice(self, refused, doubled, request):
        name = request.node.callspec.id
        assert refused(yaml.safe_dump_all([doubled, doubled])) == f"{name}: is there twice"

    @pytest.mark.parametrize(
        "content",
        [
            pytest.param(b"a: [", id="broken YAML"),
            pytest.param(b'{"a": ', id="broken JSON"),
            pytest.param(b"\xff\xfe\x00\xd8", id="not text"),
            pytest.param(b"a: 2024-13-45", id="no such day"),
            pytest.param(b"a: " + b"9" * 5000, id="a number without end"),
            pytest.param(b"{[1]: 2}", id="a list as key"),
            pytest.param(b"a: !!python/object:os.system x", id="a Python object"),
            pytest.param(b'{"a":' * 100_000, id="very deep JSON"),
            pytest.param(b"a: " + b"[" * 100_000, id="very deep YAML"),
            pytest.param(
                b"a:\n" + b"".join(b" " * i + b"-\n" for i in range(1, 400)), id="very deep blocks"
            ),
        ],
    )
    def test_a_file_that_is_none(self, refused, content):
        assert refused(content).startswith("FILE: ")

    def test_lists_in_lists_without_end(self, refused):
        assert "nested too deep" in refused("&a\napiVersion: v1\nkind: List\nitems: [*a]\n")

    def test_a_file_that_is_not_there(self, capsys):
        assert main(["plan", "-f", "nowhere.yaml"]) == 1
        assert (
            capsys.readouterr().err
            == "vreplica: nowhere.yaml: cannot be read: No such file or directory\n"
        )

    def test_a_file_that_is_too_large(self, refused, monkeypatch):
        monkeypatch.setattr("extender.cli.query.files.FILE_BYTES_MAX", 10)
        assert refused("a: " + "b" * 20).startswith("FILE: is larger than")


def conditions(ready: str) -> Json:
    return {
        "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]
    }


DEAD_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "dead"},
    "status": conditions("Unknown"),
}


def test_what_stands_on_a_node_that_is_lost_is_told_beside_what_would_move(plan):
    standing = [{"podName": "d-0", "vreplicas": 1}, {"podName": "d-1", "vreplicas": 3}]
    documents = (
        POOL,
        STATEFUL_SET,
        DEAD_NODE,
        a_pod(0),
        a_pod(1, node="dead"),
        a_vpod("a", 4, standing),
    )
    result = plan(*documents)
    (note,) = result["notes"]
    assert note == (
        "pool k/d: nobody serves 3 vreplicas of 1 vpod now: 3 because node dead is not Ready; "
        "what is away for 300 s is placed elsewhere (rescheduleAfterSeconds)"
    )
    assert result["pools"][0]["unservedVReplicas"] == 3
    assert "nobody serves 3 vreplicas of 1 vpod now" in " ".join(
        plan(*documents, options=()).split()
    )
    compared = plan(*documents, options=("--diff", "-o", "json"))
    assert (compared["summary"]["unserved"], compared["notes"]) == (3, [note])
    assert "nothing would move" in (text := plan(*documents, options=("--diff",)))
    assert "served by nobody: 3" in " ".join(text.split())


@pytest.mark.parametrize(
    ("more", "unserved"),
    [
        pytest.param({}, 0, id="says nothing, as in most files"),
        pytest.param({"status": conditions("True")}, 0, id="Ready"),
        pytest.param({"status": conditions("False")}, 3, id="not Ready"),
        pytest.param({"status": {"phase": "Failed"}}, 3, id="finished"),
    ],
)
def test_a_pod_of_a_file_is_unserved_where_it_says_so(plan, more: Json, unserved: int):
    vpod = a_vpod("a", 3, [{"podName": "d-0", "vreplicas": 3}])
    result = plan(POOL, STATEFUL_SET, {**a_pod(0), **more}, a_pod(1), vpod)
    assert result["pools"][0]["unservedVReplicas"] == unserved
    assert ("notes" in result) is bool(unserved)
