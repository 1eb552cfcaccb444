"""Malformed, oversized and foreign requests to every endpoint: a clear answer, and nothing that is
stored changes.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from extender.kube.api import (
    ADAPTERPOOLS,
    CRDS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    VPODS,
    ApiError,
    Obj,
    PatchType,
)
from extender.model.ledger import Share, encode_ledger
from extender.model.names import PLACEMENTS_ANNOTATION, POOL_LABEL, SCHEDULER_NAME, SLOTS_ANNOTATION
from extender.node.wire import BODY_BYTES_MAX
from tests.e2e.backend import Backend
from tests.e2e.objects import pod
from tests.e2e.scenario import POOL, SLOTS_PER_POD, System
from tests.e2e.waiting import NotYet, eventually

VERBS: Final = ("/v1/filter", "/v1/prioritize", "/v1/bind", "/v1/preempt")
STORED: Final = (
    ADAPTERPOOLS,
    CRDS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    VPODS,
)
POLICY_BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
WEBHOOK_BODY_BYTES_MAX: Final = 3 * 1024 * 1024

MALFORMED: Final[dict[str, bytes]] = {
    "nothing": b"",
    "not JSON": b"PodName=a",
    "half of a document": b'{"Pod": {"metadata": {"name": "a"',
    "not UTF-8": b'{"Pod": "\xff\xfe"}',
    "null": b"null",
    "a list": b"[]",
    "a number": b"1e999",
    "nested too deeply": b"[" * 100_000 + b"]" * 100_000,
    "an object nested too deeply": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "a key twice": b'{"Pod": {}, "Pod": {}}',
    "nothing of what is expected": b"{}",
    "wrong types": b'{"Pod": 1, "Nodes": "a", "NodeNames": {}, "PodName": [], "Node": null, '
    b'"request": 7}',
}


class Sender:
    """Sends anything to the service or the webhook."""

    def __init__(self, system: System, session: aiohttp.ClientSession) -> None:
        self._system = system
        self._session = session
        self.answers = 0

    async def post(
        self, path: str, body: Any, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Status and text."""
        webhook = path in {"/mutate", "/validate"}
        url = (self._system.webhook_url if webhook else self._system.service_url) + path
        tls = self._system.webhook_tls if webhook else None
        sent = {"Content-Type": "application/json", **(headers or {})}
        async with self._session.post(url, data=body, headers=sent, ssl=tls or True) as reply:
            self.answers += 1
            return reply.status, await reply.text()


async def _at_rest(backend: Backend) -> dict[tuple[str, str, str], str]:
    """The stored versions once nothing has changed for a second: the pool's status follows what it
    tells of.
    """

    async def look() -> dict[tuple[str, str, str], str]:
        first = await _versions(backend)
        await asyncio.sleep(1.0)
        second = await _versions(backend)
        assert first == second
        return second

    return await eventually(look, 15.0, "nothing changes any more")


async def _versions(backend: Backend) -> dict[tuple[str, str, str], str]:
    return {
        (
            resource.kind,
            obj["metadata"].get("namespace", ""),
            obj["metadata"]["name"],
        ): obj["metadata"]["resourceVersion"]
        for resource in STORED
        for obj in (await backend.api.list_page(resource)).items
    }


async def test_no_request_from_elsewhere_changes_what_is_stored(backend: Backend, tmp_path: Path):
    async with System(backend, tmp_path) as system, aiohttp.ClientSession() as session:
        node, *_ = await backend.add_nodes(3)
        namespace = await system.pool()
        await system.vpods(5, 8)
        bystander = pod(namespace, "bystander", schedulerName="nobody")
        await backend.apply([bystander])
        await system.settled(pods=2)
        before = await _at_rest(backend)
        sender = Sender(system, session)
        await _malformed(sender)
        await _not_json(sender)
        await _oversized(sender)
        await _foreign_pods(sender, namespace, node)
        await _foreign_binds(sender, system, node)
        await _foreign_reviews(sender, namespace)
        assert sender.answers > 80
        assert await _versions(backend) == before
        assert (await system.service.get("/readyz"))[0] == 200
        assert (await system.service.get("/livez"))[0] == 200
        for page in ("/v1/filter", "/v2/filter", "/state", "/../etc/passwd", "/%00"):
            status, _ = await system.service.get(page)
            assert status in {400, 404, 405}
        await system.vpods(3, 8)
        await system.settled(pods=4)


async def _malformed(sender: Sender) -> None:
    for path in (*VERBS, "/mutate", "/validate"):
        for what, body in MALFORMED.items():
            status, text = await sender.post(path, body)
            assert status == 400, f"{path}: {what}: {status} {text[:200]}"
            assert 0 < len(text) < 2000, f"{path}: {what}: {text[:200]}"
            assert "Traceback" not in text


async def _not_json(sender: Sender) -> None:
    """A page in somebody's browser can send a form or plain text to loopback without asking; JSON
    it cannot.
    """
    for path in (*VERBS, "/mutate", "/validate"):
        for content_type in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=a",
        ):
            status, text = await sender.post(path, b"{}", {"Content-Type": content_type})
            assert status in {400, 415}, f"{path}: {content_type}: {status} {text[:200]}"


async def _oversized(sender: Sender) -> None:
    for path, limit in (("/v1/filter", BODY_BYTES_MAX), ("/mutate", WEBHOOK_BODY_BYTES_MAX)):
        status = 413
        try:
            status, text = await sender.post(path, _spaces(limit + 1024 * 1024))
        except aiohttp.ClientError:
            continue  # it hung up in the middle of the body: that is an answer too
        assert status == 413, f"{path}: {status} {text[:200]}"


async def _spaces(size_bytes: int) -> AsyncIterator[bytes]:
    block = b" " * (1024 * 1024)
    for _ in range(size_bytes // len(block)):
        yield block


async def _foreign_pods(sender: Sender, namespace: str, node: str) -> None:
    """Readable requests about pods that do not exist, are not ours or lie."""
    unknown = pod(namespace, f"{POOL}-7")
    unknown["metadata"] |= {"uid": "u-1", "labels": {POOL_LABEL: POOL}}
    no_pool = pod(namespace, "other-0")
    no_pool["metadata"] |= {"uid": "u-2", "labels": {POOL_LABEL: "no-such-pool"}}
    lying = pod(namespace, f"{POOL}-8")
    lying["metadata"] |= {
        "uid": "u-3",
        "labels": {POOL_LABEL: POOL},
        "annotations": {"vreplica.dev/slots": "many", "vreplica.dev/placements": '{"a/b": 1e9}'},
    }
    plain = pod(namespace, "plain")
    plain["metadata"]["uid"] = "u-4"
    for foreign in (unknown, no_pool, lying, plain):
        for path in VERBS[:2]:
            status, text = await sender.post(
                path, _json({"Pod": foreign, "NodeNames": [node, "no-such"]})
            )
            assert status == 200, f"{path}: {status} {text[:200]}"
            json.loads(text)
        victims = {node: {"Pods": [{"UID": "nobody"}], "NumPDBViolations": 0}}
        status, text = await sender.post(
            "/v1/preempt", _json({"Pod": foreign, "NodeNameToMetaVictims": victims})
        )
        assert status == 200, f"preempt: {status} {text[:200]}"


async def _foreign_binds(sender: Sender, system: System, node: str) -> None:
    stored = {obj["metadata"]["name"]: obj["metadata"] for obj in await system.adapters()}
    mine = stored[f"{POOL}-0"]
    bystander = (await system.backend.api.get(PODS, system.namespace, "bystander"))["metadata"]
    base = {"PodNamespace": system.namespace, "Node": node}
    refused = {
        "a pod that is not there": {**base, "PodName": "nobody", "PodUID": "u"},
        "another incarnation": {**base, "PodName": mine["name"], "PodUID": "u"},
        "a pod that is none of ours": {
            **base,
            "PodName": bystander["name"],
            "PodUID": bystander["uid"],
        },
        "a namespace that is not there": {
            **base,
            "PodName": "a",
            "PodNamespace": "nowhere",
            "PodUID": "u",
        },
    }
    for what, bind in refused.items():
        status, text = await sender.post("/v1/bind", _json(bind))
        assert status == 200, f"{what}: {status} {text[:200]}"
        assert json.loads(text)["Error"], what
    for name in (f"../../nodes/{node}", "a/b", "a?x=y", "A B", "x" * 300):
        status, text = await sender.post(
            "/v1/bind", _json({**base, "PodName": name, "PodUID": "u"})
        )
        assert status == 400, f"{name}: {status} {text[:200]}"


async def _foreign_reviews(sender: Sender, namespace: str) -> None:
    review: Obj = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    odd: dict[str, Any] = {
        "another kind": {**review, "kind": "TokenReview", "request": {"uid": "u"}},
        "another version": {
            **review,
            "apiVersion": "admission.k8s.io/v1beta1",
            "request": {"uid": "u"},
        },
        "no request": review,
        "no uid": {**review, "request": {"object": {}}},
    }
    for path in ("/mutate", "/validate"):
        for what, body in odd.items():
            status, text = await sender.post(path, _json(body))
            assert status == 400, f"{path}: {what}: {status} {text[:200]}"
        status, _ = await sender.post(path, b"\x1f\x8b", {"Content-Encoding": "gzip"})
        assert status == 400


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()


async def test_the_ledger_is_not_for_people_to_write(backend: Backend, tmp_path: Path):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(1)
        namespace = await system.pool()
        await system.vpods(2, 8)
        (adapter,) = await system.settled(pods=1)
        for annotation in (PLACEMENTS_ANNOTATION, SLOTS_ANNOTATION):
            patch = {"metadata": {"annotations": {annotation: "{}"}}}
            with pytest.raises(ApiError) as refused:
                await backend.api.patch(
                    PODS, namespace, adapter.name, patch, patch_type=PatchType.MERGE
                )
            assert refused.value.status in {400, 403, 422}
            assert annotation in refused.value.message
        # A pod that is created with a made-up ledger is stamped with what its ordinal has, and that
        # is nothing.
        made_up = pod(namespace, f"{POOL}-7")
        made_up["metadata"] |= {
            "labels": {POOL_LABEL: POOL},
            "annotations": {PLACEMENTS_ANNOTATION: '{"a/b":20}', SLOTS_ANNOTATION: "1000"},
        }
        path = f"/api/v1/namespaces/{namespace}/pods"
        stamped = await system.raw.request("POST", path, made_up, query={"dryRun": "All"})
        assert stamped.body["metadata"]["annotations"] == {
            PLACEMENTS_ANNOTATION: "{}",
            SLOTS_ANNOTATION: str(SLOTS_PER_POD),
        }
        assert await system.settled(pods=1) == [adapter]


async def test_a_bind_of_anything_but_a_waiting_adapter_pod_of_ours_binds_nothing(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system, aiohttp.ClientSession() as session:
        nodes = await backend.add_nodes(2)
        namespace = await system.pool()
        await system.vpods(2, 8)
        (adapter,) = await system.settled(pods=1)
        node = adapter.node
        (cordoned,) = (name for name in nodes if name != node)
        await backend.api.patch(
            NODES, "", cordoned, {"spec": {"unschedulable": True}}, patch_type=PatchType.MERGE
        )
        tenant = await backend.namespace("tenant")
        labels = {"labels": {POOL_LABEL: POOL}}
        made_up = {"annotations": {PLACEMENTS_ANNOTATION: '{"a/b":20}', SLOTS_ANNOTATION: "1000"}}
        namesake = await _made(
            backend, pod(tenant, adapter.name, schedulerName=SCHEDULER_NAME), labels
        )
        batch = await _made(
            backend, pod(namespace, "batch-0", schedulerName="batch-scheduler"), labels
        )
        orphan = await _made(
            backend, pod(namespace, "orphan-7", schedulerName=SCHEDULER_NAME), labels
        )
        plain = await _made(backend, pod(namespace, "plain-0", schedulerName="nobody"), made_up)
        refused = {
            "a tenant's pod of the same name": ({**namesake, "Node": node}, "PoolNotFound"),
            "its UID with our namespace": ({**namesake, "PodNamespace": namespace}, "PodChanged"),
            "another scheduler's pod": (batch, "OtherScheduler"),
            "a pod that no StatefulSet owns": (orphan, "StatefulSetNotFound"),
            "a pod without the label, with a ledger": (plain, "OtherScheduler"),
            "a pod that is bound, to another node": (
                {
                    "PodNamespace": namespace,
                    "PodName": adapter.name,
                    "PodUID": adapter.uid,
                    "Node": cordoned,
                },
                "PodAlreadyBound",
            ),
            "a node that is not there": ({**batch, "Node": "node-999"}, "OtherScheduler"),
        }
        sender = Sender(system, session)
        for what, (bind, reason) in refused.items():
            status, text = await sender.post("/v1/bind", _json({"Node": node, **bind}))
            assert status == 200, f"{what}: {status} {text[:200]}"
            assert json.loads(text)["Error"].startswith(reason), f"{what}: {text[:200]}"
        for bind in (namesake, batch, orphan, plain):
            left = await backend.api.get(PODS, bind["PodNamespace"], bind["PodName"])
            assert "nodeName" not in left["spec"], bind
            await backend.api.delete(PODS, bind["PodNamespace"], bind["PodName"], grace_period_s=0)
        assert await system.settled(pods=1) == [adapter]


async def _made(backend: Backend, obj: Obj, metadata: Obj) -> dict[str, str]:
    """Creates a pod; how a bind would name it."""
    obj["metadata"] |= metadata
    stored = (await backend.apply([obj]))[0]["metadata"]
    return {"PodNamespace": stored["namespace"], "PodName": stored["name"], "PodUID": stored["uid"]}


async def test_a_ledger_that_was_forged_while_nothing_guarded_it_is_told_and_put_right(
    backend: Backend, tmp_path: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(1)
        namespace = await system.pool()
        await system.vpods(2, 8)
        (adapter,) = await system.settled(pods=1)
        forged = encode_ledger({**adapter.ledger, "tenant/ghost": Share(3)})
        patch = {"metadata": {"annotations": {PLACEMENTS_ANNOTATION: forged}}}

        async def refusal() -> str:
            try:
                await backend.api.patch(
                    PODS, namespace, adapter.name, patch, patch_type=PatchType.MERGE
                )
            except ApiError as error:
                return error.message
            return "none"

        async def refused_by(guard: str) -> bool:
            said = await refusal()
            if guard not in said:
                raise NotYet(said)
            return True

        # Each guard alone: the policy (which the embedded cluster does not obey), then the webhook,
        # then none.
        if backend.name == "real":
            assert "ValidatingAdmissionPolicy" in await refusal()
        await system.raw.delete(f"{POLICY_BINDINGS}/vreplica-ledger")
        await eventually(
            lambda: refused_by("pods.validate.vreplica.dev"), 10.0, "the webhook refuses it"
        )
        assert (await system.adapters())[0]["metadata"]["annotations"][
            PLACEMENTS_ANNOTATION
        ] == encode_ledger(adapter.ledger)
        assert system.webhook is not None
        await system.webhook.kill()
        assert await refusal() == "none"
        await system.event(namespace, adapter.name, "ForeignWrite", "tenant/ghost 0 -> 3")
        (again,) = await system.settled(pods=1)
        assert again.ledger == adapter.ledger
        metrics = (await system.service.get("/metrics"))[1]
        assert 'vreplica_scheduler_repairs_total{kind="ForeignWrite"} 1.0' in metrics
