"""What an adapter may say of its assignment, what is stored of it, and what a refusal leaves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.kube.api import ApiError, Conflict, Forbidden, NotFound
from extender.model.names import ACKNOWLEDGED_ANNOTATION, ASSIGNMENT_ANNOTATION
from extender.service.http.adapters import acknowledge
from extender.service.pools.acknowledgements import AcknowledgementWriter
from tests.service.http.adapters.scene import VPOD, Adapters, adapters, token
from tests.support.builders import NS
from tests.support.service import lost, until

LOAD: dict[str, Any] = {"rebalance": {"load": {"metric": "rps", "target": 1.2}}}


async def told(it: Adapters, *ordinals: int, vreplicas: int = 4) -> int:
    """Wait for the assignments; the first pod's generation."""
    for ordinal in ordinals:
        await it.told(ordinal, vreplicas)
    return int((await it.assignment(ordinals[0]))["generation"])


async def test_what_an_adapter_serves_is_stored_once_and_said_again_for_nothing(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        generation = await told(it, 0)
        writes = it.api.count("patch", "pods")
        for stored in (True, False, False):
            status, text, _ = await it.acknowledge(0)
            assert status == 200
            assert orjson.loads(text) == {"generation": generation, "stored": stored}
        assert await it.acknowledged(0) == {"generation": generation, "serving": 1}
        assert it.api.count("patch", "pods") == writes + 1
        assert it.metric("acknowledgements_total") == {
            '{outcome="stored"}': 1.0,
            '{outcome="unchanged"}': 2.0,
        }


async def test_a_share_that_is_not_served_yet_is_stored_as_busy_until_it_is(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        generation = await told(it, 0)
        busy = {"generation": generation, "serving": 0, "busy": [VPOD]}
        for serving, unserved in ([], []), ([VPOD], [VPOD]):
            assert (await it.acknowledge(0, serving=serving, busy=unserved))[0] == 200
            assert await it.acknowledged(0) == busy
        assert (await it.acknowledge(0))[0] == 200
        assert await it.acknowledged(0) == {"generation": generation, "serving": 1}


@pytest.mark.parametrize(
    ("changed", "status", "says", "outcome"),
    [
        pytest.param({"uid": 7}, 400, "uid: must be the pod's UID", "malformed", id="no UID"),
        pytest.param({"generation": "1"}, 400, "generation: must be", "malformed", id="a text"),
        pytest.param({"generation": 0}, 400, "generation: must be", "malformed", id="generation 0"),
        pytest.param({"serving": "all"}, 400, "serving: must be a list", "malformed", id="no list"),
        pytest.param({"busy": ["a"] * 5_001}, 400, "busy: has 5001", "malformed", id="too many"),
        pytest.param({"load": {VPOD: "7"}}, 400, "is no number", "malformed", id="load is a text"),
        pytest.param({"load": {VPOD: -1}}, 400, "is negative: -1", "malformed", id="less than 0"),
        pytest.param({"uid": "u"}, 403, "uid is not that", "another pod", id="another UID"),
        pytest.param({"serving": ["t/x"]}, 422, "serving has", "wrong shares", id="a stranger"),
        pytest.param({"draining": ["t/x"]}, 422, "draining has", "wrong shares", id="it drains"),
        pytest.param({"drained": ["t/x"]}, 422, "drained has", "wrong shares", id="it has drained"),
        pytest.param({"busy": ["t/x"]}, 422, "busy has", "wrong shares", id="it is busy"),
        pytest.param(
            {"serving": [VPOD], "drained": [VPOD]},
            422,
            f"serving and drained both have '{VPOD}'",
            "wrong shares",
            id="served and drained",
        ),
    ],
)
async def test_a_refused_acknowledgement_changes_nothing_and_says_why(
    tmp_path: Path, changed: dict[str, Any], status: int, says: str, outcome: str
):
    async with adapters(tmp_path, 0, **LOAD) as it:
        await told(it, 0)
        got, text, _ = await it.acknowledge(0, **{"load": {VPOD: 3.0}, **changed})
        assert says in text
        assert got == status
        assert await it.acknowledged(0) is None
        assert it.metric("acknowledgements_total") == {f'{{outcome="{outcome}"}}': 1.0}
        assert it.metric("load_reports_total") == {}


async def test_no_pod_speaks_for_another(tmp_path: Path):
    async with adapters(tmp_path, 0, 1) as it:
        await told(it, 0, 1, vreplicas=2)
        status, text, _ = await it.acknowledge(0, bearer=token(1))
        assert (status, f"uid is not that of pod {NS}/dispatcher-1" in text) == (403, True)
        assert [await it.acknowledged(ordinal) for ordinal in (0, 1)] == [None, None]


@pytest.mark.parametrize(
    ("ahead", "retry"), [(-1, None), (1, "1"), (2**60, "1")], ids=["older", "newer", "much newer"]
)
async def test_another_generation_is_refused_with_the_known_one(
    tmp_path: Path, ahead: int, retry: str | None
):
    async with adapters(tmp_path, 0) as it:
        await told(it, 0)
        await it.world.set_vreplicas("a", 5)
        generation = await told(it, 0, vreplicas=5)
        status, text, headers = await it.acknowledge(0, generation=generation + ahead)
        assert (status, orjson.loads(text)["generation"]) == (409, generation)
        assert headers.get("Retry-After") == retry
        assert await it.acknowledged(0) is None


async def test_with_no_assignment_yet_any_generation_is_newer(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        it.api.fail("patch", "pods", before=ApiError(500, "InternalError", "etcd"), times=999)
        uid = await it.world.uid(0)
        body = {"uid": uid, "generation": 3}
        async with it.request("POST", "/v1/acknowledge", token(0), json=body) as reply:
            assert (reply.status, (await reply.json())["generation"]) == (409, 0)
            assert reply.headers["Retry-After"] == "1"


async def test_a_pool_without_handoff_takes_none(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await told(it, 0)
        before = await it.assignment(0)
        await it.world.patch_pool(handoff=None)

        await until(lambda: it.assignment(0), {}, timeout_s=5)
        body = {"uid": before["uid"], "generation": 1, "serving": []}
        async with it.request("POST", "/v1/acknowledge", token(0), json=body) as reply:
            assert (reply.status, "no spec.handoff" in await reply.text()) == (404, True)


async def test_a_body_over_the_limit_is_refused(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await told(it, 0)
        status, _, _ = await it.acknowledge(0, junk="x" * 600_000)
        assert status == 413
        assert await it.acknowledged(0) is None


async def test_busy_shares_whose_names_do_not_fit_into_the_annotation_are_taken_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A refusal would end the lease of an adapter that has just begun (seed 20732048)."""
    monkeypatch.setattr("extender.model.assignment.ACKNOWLEDGED_BYTES_MAX", 40)
    async with adapters(tmp_path, 0) as it:
        await told(it, 0)
        assert (await it.acknowledge(0, serving=[]))[0] == 200
        stored = await it.acknowledged(0)
        assert stored is not None
        assert stored["busy"] == "*"
        assert (await it.acknowledge(0))[0] == 200
        stored = await it.acknowledged(0)
        assert stored is not None
        assert "busy" not in stored


async def test_one_pod_that_says_too_much_waits_and_keeps_no_other_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(acknowledge, "QPS", 0.01)
    async with adapters(tmp_path, 0, 1) as it:
        await told(it, 0, 1, vreplicas=2)
        statuses = [(await it.acknowledge(0))[0] for _ in range(acknowledge.BURST)]
        assert statuses == [200] * acknowledge.BURST
        status, text, headers = await it.acknowledge(0)
        assert (status, 0 < int(headers["Retry-After"]) <= 100) == (429, True)
        assert "acknowledges too often" in text
        assert (await it.acknowledge(1))[0] == 200
        assert it.metric("acknowledgements_total")['{outcome="too often"}'] == 1.0


async def test_while_it_shuts_down_it_takes_none(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await told(it, 0)
        it.service.health.draining = True
        status, text, headers = await it.acknowledge(0)
        assert (status, text, headers["Retry-After"]) == (503, "shutting down\n", "1")
        it.service.health.draining = False
        assert await it.acknowledged(0) is None


async def test_who_has_not_acknowledged_what_is_newest_is_counted_by_pool(tmp_path: Path):
    async with adapters(tmp_path, 0, 1) as it:
        await told(it, 0, 1, vreplicas=2)

        async def counted(pods: int) -> None:
            wanted = {f'{{pool="{NS}/dispatcher"}}': float(pods)} if pods else {}
            await until(lambda: it.metric("pool_unacknowledged_pods") == wanted, timeout_s=5)

        await counted(2)
        await it.acknowledge(0)
        await counted(1)
        await it.acknowledge(1, serving=[])
        await counted(0)
        await it.world.set_vreplicas("a", 6)
        await counted(2)


# -- other writers ---------------------------------------------------------------------------------


async def test_after_a_conflict_it_is_stored_on_the_newest_pod(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        generation = await told(it, 0)
        it.api.fail("patch", "pods", then=lambda: it.world.annotate(0, other="1"))
        status, text, _ = await it.acknowledge(0)
        assert (status, orjson.loads(text)["stored"]) == (200, True)
        assert await it.acknowledged(0) == {"generation": generation, "serving": 1}


@pytest.mark.parametrize("said_before", [False, True])
async def test_an_acknowledgement_of_what_changes_meanwhile_is_refused(
    tmp_path: Path, said_before: bool
):
    async with adapters(tmp_path, 0) as it:
        generation = await told(it, 0)
        if said_before:
            assert (await it.acknowledge(0, serving=[]))[0] == 200
        before = await it.acknowledged(0)

        async def grow() -> None:
            await it.world.set_vreplicas("a", 5)
            await it.told(0, 5)

        it.api.fail("patch", "pods", then=grow)
        status, text, headers = await it.acknowledge(0)
        newest = (await it.assignment(0))["generation"]
        assert newest > generation
        assert (status, orjson.loads(text)["generation"]) == (409, newest)
        assert "Retry-After" not in headers
        assert await it.acknowledged(0) == before


async def test_a_writer_that_comes_second_begins_again_from_what_the_first_has_stored(
    tmp_path: Path,
):
    async with adapters(tmp_path, 0) as it:
        generation = await told(it, 0)
        assert (await it.acknowledge(0, serving=[]))[0] == 200
        reads = it.api.count("get", "pods")
        pause = it.api.pause("patch", "pods")
        late = asyncio.create_task(it.acknowledge(0))
        await pause.reached.wait()
        other = orjson.dumps({"generation": generation, "serving": 0, "busy": ["t/z"]}).decode()
        await it.world.annotate(0, **{ACKNOWLEDGED_ANNOTATION: other})
        pause.go_on.set()
        status, text, _ = await late
        assert (status, orjson.loads(text)["stored"]) == (200, True)
        assert it.api.count("get", "pods") == reads + 1
        assert await it.acknowledged(0) == {"generation": generation, "serving": 1}


async def test_a_pod_that_changes_all_the_time_is_given_up(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await told(it, 0)
        it.api.fail("patch", "pods", before=Conflict(409, "Conflict", "changed"), times=99)
        status, text, headers = await it.acknowledge(0)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "changes all the time" in text
        assert await it.acknowledged(0) is None


@pytest.mark.parametrize("arrived", [False, True])
async def test_a_write_without_an_answer_is_looked_up(tmp_path: Path, arrived: bool):
    async with adapters(tmp_path, 0) as it:
        generation = await told(it, 0)
        it.api.fail("patch", "pods", **{"after" if arrived else "before": lost()})
        status, text, _ = await it.acknowledge(0)
        assert (status, orjson.loads(text)) == (200, {"generation": generation, "stored": True})
        assert await it.acknowledged(0) == {"generation": generation, "serving": 1}


async def test_what_the_api_server_does_not_take_may_be_said_again(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await told(it, 0)
        it.api.fail("patch", "pods", before=Forbidden(403, "Forbidden", "no right"))
        status, text, headers = await it.acknowledge(0)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "no right" in text
        assert (await it.acknowledge(0))[0] == 200


async def test_a_pod_that_ends_meanwhile_has_nothing_stored(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        generation = await told(it, 0)
        body = {"uid": (await it.assignment(0))["uid"], "generation": generation}
        it.api.fail("patch", "pods", then=lambda: it.world.remove_pod(0))
        async with it.request("POST", "/v1/acknowledge", token(0), json=body) as reply:
            assert (reply.status, "is gone" in await reply.text()) == (403, True)


# -- leases ----------------------------------------------------------------------------------------


@asynccontextmanager
async def said_once(folder: Path, mode: str = "Exclusive") -> AsyncIterator[Adapters]:
    """An adapter that has said what it serves. Its pool was not exclusive before, so nobody waits
    for a lease to run out.
    """
    async with adapters(folder, 0, handoff={"mode": "Overlap"}) as it:
        await told(it, 0)
        await it.world.patch_pool(handoff={"mode": mode})

        async def is_told() -> bool:
            return ("leaseSeconds" in await it.assignment(0)) is (mode == "Exclusive")

        await until(is_told, timeout_s=5)
        assert (await it.acknowledge(0))[0] == 200
        yield it


@pytest.mark.parametrize("mode", ["Exclusive", "Overlap"])
async def test_what_is_said_again_is_compared_with_what_is_stored_and_not_with_the_cache(
    tmp_path: Path, mode: str
):
    async with said_once(tmp_path, mode) as it:
        before = it.api.count("get", "pods")
        status, text, _ = await it.acknowledge(0)
        assert (status, orjson.loads(text)["stored"]) == (200, False)
        assert it.api.count("get", "pods") == before + 1


async def test_what_is_said_replaces_an_older_one_that_this_replica_has_not_seen(tmp_path: Path):
    """Seed 610000441: another replica has stored it last, because it was on its way for longer."""
    async with said_once(tmp_path, "Overlap") as it:
        older = await it.world.annotation(0, ACKNOWLEDGED_ANNOTATION)
        assert older is not None
        busy = {**orjson.loads(older), "serving": 0, "busy": [VPOD]}
        pause = it.api.pause("get", "pods")
        said = asyncio.create_task(it.acknowledge(0))
        await pause.reached.wait()
        await it.world.annotate(0, **{ACKNOWLEDGED_ANNOTATION: orjson.dumps(busy).decode()})
        pause.go_on.set()
        status, text, _ = await said
        assert (status, orjson.loads(text)["stored"]) == (200, True)
        assert await it.world.annotation(0, ACKNOWLEDGED_ANNOTATION) == older


async def test_what_this_replica_has_not_heard_yet_renews_no_lease(tmp_path: Path):
    async with said_once(tmp_path) as it:
        newer = {**(await it.assignment(0)), "shares": {}}
        newer["generation"] += 1
        text = orjson.dumps(newer).decode()
        body = {"uid": newer["uid"], "generation": newer["generation"] - 1, "serving": [VPOD]}
        pause = it.api.pause("get", "pods")
        asked = it.request("POST", "/v1/acknowledge", token(0), json=body)
        said = asyncio.create_task(answered(asked))
        await pause.reached.wait()
        await it.world.annotate(0, **{ASSIGNMENT_ANNOTATION: text})
        pause.go_on.set()
        assert (await said)[0] == 409


async def answered(asked: Any) -> tuple[int, str]:
    async with asked as reply:
        return reply.status, await reply.text()


async def test_a_pod_whose_name_another_one_has_by_now_renews_no_lease(tmp_path: Path):
    async with said_once(tmp_path) as it:
        told_of = await it.assignment(0)
        body = {"uid": told_of["uid"], "generation": told_of["generation"], "serving": [VPOD]}
        pause = it.api.pause("get", "pods")
        asked = it.request("POST", "/v1/acknowledge", token(0), json=body)
        said = asyncio.create_task(answered(asked))
        await pause.reached.wait()
        await it.world.remove_pod(0)
        await it.world.pods(0)
        pause.go_on.set()
        status, text = await said
        assert (status, "is gone" in text) == (403, True)


async def test_a_pod_that_is_read_must_be_the_one_that_is_known(tmp_path: Path):
    async with said_once(tmp_path) as it:
        pod = it.service.caches.pods.latest(f"{NS}/dispatcher-0")
        assert pod is not None
        writer = AcknowledgementWriter(it.api, it.service.caches)
        with pytest.raises(NotFound, match="another one now"):
            await writer.read(replace(pod, uid="the one before"))


async def test_while_the_api_server_does_not_answer_no_lease_is_renewed(tmp_path: Path):
    async with said_once(tmp_path) as it:
        it.api.fail("get", "pods", before=Forbidden(403, "Forbidden", "no right"))
        status, _, headers = await it.acknowledge(0)
        assert (status, headers["Retry-After"]) == (503, "1")


# -- load ------------------------------------------------------------------------------------------


async def test_load_goes_to_the_leader_of_a_pool_that_balances_it(tmp_path: Path):
    async with adapters(tmp_path, 0, **LOAD) as it:
        await told(it, 0)
        for stored in (True, False):
            _, text, _ = await it.acknowledge(0, load={VPOD: 7.5})
            answer = orjson.loads(text)
            assert (answer["stored"], answer["load"]) == (stored, "kept")
        assert it.metric("load_reports_total") == {'{result="kept"}': 2.0}


async def test_load_that_does_not_count_is_told_with_its_reason(tmp_path: Path):
    async with adapters(tmp_path, 0, **LOAD) as it:
        await told(it, 0)
        _, text, _ = await it.acknowledge(0, load={VPOD: 1.0, "t/x": 2.0})
        assert orjson.loads(text)["load"] == "kept 1 of 2: t/x: NotPlaced"


async def test_load_is_ignored_by_a_pool_that_does_not_balance_it_and_the_answer_says_so(
    tmp_path: Path,
):
    async with adapters(tmp_path, 0) as it:
        await told(it, 0)
        _, text, _ = await it.acknowledge(0, load={VPOD: 7.5})
        answer = orjson.loads(text)
        assert answer["stored"] is True
        assert answer["load"].startswith("ignored: AdapterPool")
        assert "rebalance.load" in answer["load"]


async def test_bad_load_is_refused_by_a_pool_that_does_not_balance_it_too(tmp_path: Path):
    async with adapters(tmp_path, 0) as it:
        await told(it, 0)
        for load, says in (-1.5, "is negative"), ("7", "is no number"), (None, "is no number"):
            status, text, _ = await it.acknowledge(0, load={VPOD: load})
            assert (status, says in text) == (400, True)
        assert await it.acknowledged(0) is None


async def test_load_is_ignored_where_another_replica_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with adapters(tmp_path, 0, **LOAD) as it:
        await told(it, 0)
        monkeypatch.setattr(it.service.leadership, "leads", lambda _pool: False)
        _, text, _ = await it.acknowledge(0, load={VPOD: 7.5})
        assert orjson.loads(text)["load"].startswith("ignored: this replica does not lead")
        assert it.metric("load_reports_total") == {}
