"""The listener for adapters: who gets what, and what a refused caller is told."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.config.model import AdaptersConfig, Config
from extender.kube.api import PODS, VPODS, ApiError
from extender.model.names import ASSIGNMENT_ANNOTATION, POOL_LABEL
from tests.service.http.adapters.scene import ACCOUNT, VPOD, adapters, beside, token, user_of
from tests.support.builders import NS
from tests.support.service import TENANT, until

PATHS = ["/v1/assignment", "/v1/assignment?watch=true", f"/v1/placements/{VPOD}"]


async def test_an_adapter_gets_the_text_of_its_own_assignment(tmp_path: Path):
    async with adapters(tmp_path, 0, 1) as it:
        for ordinal in (0, 1):
            await it.told(ordinal, 2)
            status, text, headers = await it.get("/v1/assignment", token(ordinal))
            stored = await it.world.annotation(ordinal, ASSIGNMENT_ANNOTATION)
            assert (status, text) == (200, stored)
            assert headers["Content-Type"].startswith("application/json")
            assert orjson.loads(text)["pod"] == f"{NS}/dispatcher-{ordinal}"


@pytest.mark.parametrize(
    ("user", "status", "says", "reason"),
    [
        pytest.param("", 401, "is required", "no token", id="no token"),
        pytest.param(
            "unknown", 401, "does not accept", "not authenticated", id="not the cluster's"
        ),
        pytest.param(ACCOUNT, 403, "projected volume", "not allowed", id="bound to no pod"),
        pytest.param(
            {"username": "kubernetes-admin", "extra": user_of("dispatcher-0", "UID")["extra"]},
            *(403, "projected volume", "not allowed"),
            id="no ServiceAccount",
        ),
        pytest.param(
            user_of("dispatcher-0", "UID", f"{NS}:dispatcher"),
            *(403, "not bound to a pod", "not allowed"),
            id="a user with a ServiceAccount's name",
        ),
        pytest.param(
            user_of("dispatcher-0", "another"), 403, "no adapter pod", "not allowed", id="other UID"
        ),
        pytest.param(
            user_of("dispatcher-0", ""), 403, "not bound to a pod", "not allowed", id="no UID"
        ),
        pytest.param(
            user_of("dispatcher-7", "UID"), 403, "no adapter pod", "not allowed", id="other name"
        ),
        pytest.param(
            user_of("dispatcher-0", "UID", "system:serviceaccount:tenant:dispatcher"),
            *(403, "no adapter pod", "not allowed"),
            id="the account is in another namespace",
        ),
    ],
)
@pytest.mark.parametrize("path", [*PATHS, "/v1/acknowledge", "/x"])
async def test_nobody_else_gets_anything_and_is_told_why(
    tmp_path: Path, path: str, user: Any, status: int, says: str, reason: str
):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        if isinstance(user, dict):
            uid = await it.world.uid(0)
            user = orjson.loads(orjson.dumps(user).replace(b'"UID"', f'"{uid}"'.encode()))
        if user not in {"", "unknown"} if isinstance(user, str) else True:
            it.api.users["caller"] = user
            user = "caller"
        method = "POST" if path == "/v1/acknowledge" else "GET"
        body = {"json": {"uid": "u"}} if method == "POST" else {}
        async with it.request(method, path, user, **body) as reply:
            assert (reply.status, says in await reply.text()) == (status, True)
        assert it.metric("adapters_callers_refused_total") == {f'{{reason="{reason}"}}': 1.0}
        assert await it.acknowledged(0) is None


async def test_a_pod_that_only_has_the_label_is_no_adapter(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        metadata = {"name": "dispatcher-9", "labels": {POOL_LABEL: "dispatcher"}}
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "node-0"}
        made = await it.world.cluster.create(PODS, NS, {"metadata": metadata, "spec": spec})
        it.api.users["impostor"] = user_of("dispatcher-9", made["metadata"]["uid"])
        await until(
            lambda: it.service.caches.pods.latest(f"{NS}/dispatcher-9") is not None, timeout_s=5
        )
        status, text, _ = await it.get(f"/v1/placements/{VPOD}", "impostor")
        assert (status, "must belong to the StatefulSet" in text) == (403, True)


async def test_allowed_accounts_may_ask_for_placements_only(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        assert (await it.get(f"/v1/placements/{VPOD}", "router"))[0] == 200
        for path in ("/v1/assignment", "/v1/assignment?watch=true"):
            status, text, _ = await it.get(path, "router")
            assert (status, "/v1/placements only" in text) == (403, True)
        status, text, _ = await it.acknowledge(0, bearer="router")
        assert (status, "/v1/placements only" in text) == (403, True)
        config = AdaptersConfig(allowed_service_accounts=("ingress/other",))
        it.service.reconfigure(replace(Config(), adapters=config))
        assert (await it.get(f"/v1/placements/{VPOD}", "router"))[0] == 403
        assert (await it.get(f"/v1/placements/{VPOD}", token(0)))[0] == 200


@pytest.mark.parametrize(
    "path", ["/v1/schedule", "/v1/load", "/v1/bind", "/state.json", "/metrics"]
)
async def test_it_has_no_other_route(tmp_path: Path, path: str):
    async with adapters(tmp_path, 0) as it:
        assert (await it.get(path, token(0)))[0] == 404
        async with it.request("POST", path, token(0), json={}) as reply:
            assert reply.status == 404


async def test_reviews_that_fail_let_nobody_in(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        it.api.trouble = ApiError(500, "InternalError", "etcd")
        status, _, headers = await it.get("/v1/assignment", token(0))
        assert (status, headers["Retry-After"]) == (503, "1")


@pytest.mark.parametrize("query", ["", "?watch=true"])
async def test_a_pool_without_handoff_has_no_assignments_and_says_so(tmp_path: Path, query: str):
    async with adapters(tmp_path, 0, handoff=None) as it:
        status, text, _ = await it.get(f"/v1/assignment{query}", token(0))
        assert (status, "has no spec.handoff" in text) == (404, True)


async def test_before_the_assignment_is_written_an_adapter_is_asked_to_wait(tmp_path: Path):
    async with adapters(tmp_path, 0, elect=True) as it:
        it.api.fail("patch", "pods", before=ApiError(500, "InternalError", "etcd"), times=99)
        status, text, headers = await it.get("/v1/assignment", token(0))
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "no assignment yet" in text


async def test_an_assignment_of_the_ordinals_previous_pod_is_not_given_to_the_next(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        text = orjson.dumps({**await it.assignment(0), "uid": "before"}).decode()
        it.api.fail("patch", "pods", before=ApiError(500, "InternalError", "etcd"), times=999)
        await it.world.annotate(0, **{ASSIGNMENT_ANNOTATION: text})

        async def is_refused() -> bool:
            return (await it.get("/v1/assignment", token(0)))[0] == 503

        await until(is_refused, timeout_s=5)


async def test_before_its_caches_are_filled_it_answers_nobody(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.told(0, 4)
        it.service.informers.not_synced = lambda: ["pods"]  # type: ignore[method-assign]
        for path in PATHS:
            status, text, headers = await it.get(path, token(0))
            assert (status, headers["Retry-After"]) == (503, "1")
            assert "caches not synced" in text
        assert (await it.acknowledge(0, uid="u", generation=1, serving=[]))[0] == 503


@pytest.mark.parametrize("query", ["?watch=yes", "?watch=1"])
@pytest.mark.parametrize("path", ["/v1/assignment", f"/v1/placements/{VPOD}"])
async def test_a_watch_is_asked_for_by_true(tmp_path: Path, path: str, query: str):
    async with adapters(tmp_path, 0) as it:
        status, text, _ = await it.get(path + query, token(0))
        assert (status, text) == (400, "watch must be true or false\n")


async def test_placements_are_those_of_the_published_status(tmp_path: Path):
    async with adapters(tmp_path, 0, 1) as it:
        await it.told(0, 2)
        await until(it.world.published, {0: 2, 1: 2}, timeout_s=5)
        version = (await it.world.cluster.get(VPODS, TENANT, "a"))["metadata"]["resourceVersion"]
        status, text, _ = await it.get(f"/v1/placements/{VPOD}", token(1))
        assert (status, orjson.loads(text)) == (
            200,
            {
                "vpod": VPOD,
                "generation": int(version),
                "placements": [
                    {"pod": f"{NS}/dispatcher-0", "vreplicas": 2},
                    {"pod": f"{NS}/dispatcher-1", "vreplicas": 2},
                ],
            },
        )


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("tenant/gone", 404, "vpod tenant/gone does not exist"),
        ("tenant/a?kind=Kafka.x.dev", 404, "vpod tenant/a@kafka.x.dev does not exist"),
        ("Tenant/a", 400, "the namespace"),
        ("tenant/A", 400, "the name"),
        ("tenant/" + "a" * 254, 400, "the name"),
        ("tenant/a?kind=kafka", 400, "KIND.GROUP"),
        ("tenant/a?kind=kafka.x/dev", 400, "KIND.GROUP"),
    ],
)
async def test_placements_of_what_does_not_exist(tmp_path: Path, path: str, status: int, says: str):
    async with adapters(tmp_path, 0) as it:
        got, text, _ = await it.get(f"/v1/placements/{path}", token(0))
        assert (got, says in text) == (status, True)


async def test_a_replica_that_does_not_lead_answers_from_its_own_cache(tmp_path: Path):
    async with adapters(tmp_path, 0) as leader:
        await leader.told(0, 4)
        second = tmp_path / "second"
        second.mkdir()
        async with beside(leader, second) as it:
            assert not it.service.leading()
            told = await leader.assignment(0)
            status, text, _ = await it.get("/v1/assignment", token(0))
            assert (status, orjson.loads(text)) == (200, told)
            assert (await it.acknowledge(0))[0] == 200
            assert await it.acknowledged(0) == {"generation": told["generation"], "serving": 1}


async def test_its_certificates_end_is_a_metric_and_the_reviews_are_counted(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await it.get("/v1/assignment", token(0))
        assert '{certificate="adapters_serving"}' in it.metric(
            "certificate_expiry_timestamp_seconds"
        )
        assert it.metric("token_reviews_total") == {"": 1.0}


async def test_a_pool_that_gets_handoff_is_told_without_a_restart(tmp_path: Path):
    async with adapters(tmp_path, 0, handoff=None) as it:
        assert (await it.get("/v1/assignment", token(0)))[0] == 404
        await it.world.patch_pool(handoff={})
        await it.told(0, 4)
        await asyncio.sleep(0.05)
        assert (await it.get("/v1/assignment", token(0)))[0] == 200
