"""Two replicas: one of them is killed, ends, is frozen, is upgraded, or is told to lead beside the
other; nothing moves.

The verbs are asked of both all the time, as a kube-scheduler beside each would do; the survivor
answers every call.
"""

import asyncio
import base64
import json
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from extender.kube.api import NotFound
from tests.e2e.backend import Backend
from tests.e2e.objects import write_json
from tests.e2e.operations import delete_pod, ledgers, published
from tests.e2e.real import RealBackend
from tests.e2e.replica import Replica
from tests.e2e.replicas import PROBE_PERIOD_S, Pair, Probes
from tests.e2e.scenario import POOL, QUICK_ELECTION, SYSTEM_NAMESPACE
from tests.e2e.waiting import eventually

log: Final = logging.getLogger(__name__)

SEED: Final = 11
TAKEN_OVER_AFTER_KILL_S: Final = 20.0
TAKEN_OVER_AFTER_END_S: Final = 3.0
on_the_real_one = pytest.mark.parametrize("backend_name", ["real"])
"""What is about times and processes; that the embedded cluster would do the same is the
simulation's to show.
"""


async def scene(pair: Pair, *, vpods: int = 5, **pool: Any) -> str:
    """A settled pool on six nodes; the tenant's namespace."""
    await pair.backend.add_nodes(6)
    await pair.pool(**pool)
    tenant = await pair.vpods(vpods, 8)
    await pair.settled(pods=-(-vpods * 8 // 20))
    return tenant


def answered_all(probes: Probes, seconds: float) -> None:
    """No probe failed, and there were about as many as there should have been (a loaded machine
    asks more slowly).
    """
    assert probes.failures == []
    log.info(
        "%s in %.1f s, the slowest took %.3f s", dict(probes.answers), seconds, probes.slowest_s
    )
    assert probes.answers["/v1/filter"] >= 0.25 * seconds / PROBE_PERIOD_S
    assert probes.answers["/v1/prioritize"] == pytest.approx(probes.answers["/v1/filter"], abs=1)


@on_the_real_one
async def test_when_the_leader_is_killed_pods_are_bound_and_the_other_leads_in_twenty_seconds(
    backend: Backend, tmp_path: Path
):
    async with Pair(backend, tmp_path) as pair:
        tenant = await scene(pair)
        before, standing = ledgers(await pair.settled()), published(pair)
        leader, other = await pair.leader()
        loop = asyncio.get_running_loop()
        async with pair.probed(other) as probes:
            pods = [pod for pod in await pair.settled() if pod.name == f"{POOL}-0"]
            killed = loop.time()
            assert leader.process is not None
            await leader.process.kill()
            # Binds need no leader: an ordinal comes back, with what it held, while nobody leads.
            await delete_pod(pair, f"{POOL}-0")
            await pair.came_back(pods[0])
            assert ledgers(await pair.settled(pods=2)) == before
            assert not (await other.state())["leading"]
            await other.leads(timeout_s=TAKEN_OVER_AFTER_KILL_S + 5.0)
            took_s = loop.time() - killed
        log.info("taken over after %.1f s", took_s)
        assert took_s < TAKEN_OVER_AFTER_KILL_S
        answered_all(probes, took_s)
        assert published(pair) == standing
        await pair.want(tenant, "source-0", 20)
        await pair.settled(pods=3)


async def test_when_the_leader_ends_it_releases_its_lease_and_the_other_leads_in_three_seconds(
    backend: Backend, tmp_path: Path
):
    async with Pair(backend, tmp_path) as pair:
        tenant = await scene(pair)
        before, standing = await pair.settled(), published(pair)
        leader, other = await pair.leader()
        loop = asyncio.get_running_loop()
        async with pair.probed(other) as probes:
            ended = loop.time()
            assert leader.process is not None
            ending = asyncio.create_task(leader.process.terminate())
            await other.leads(timeout_s=10.0)
            took_s = loop.time() - ended
            assert await ending == 0
            asked_s = loop.time() - ended
        log.info("taken over after %.1f s", took_s)
        assert took_s < TAKEN_OVER_AFTER_END_S
        answered_all(probes, asked_s)
        assert await pair.settled() == before
        assert published(pair) == standing
        # And it places: what one vpod gives up, another gets, and a new pod is bound.
        await pair.want(tenant, "source-0", 3)
        await pair.want(tenant, "source-1", 13)
        await pair.vpods(1, 8, tenant=tenant, prefix="late")
        await pair.settled(pods=3)


@asynccontextmanager
async def loaded(pair: Pair, tenant: str, *, period_s: float = 0.3) -> AsyncIterator[None]:
    """Vpods are created and resized, and pods deleted, all the time."""
    rng = random.Random(SEED)
    names = [vpod.name for vpod in (await pair.all_vpods()).values() if vpod.namespace == tenant]

    async def load() -> None:
        while True:
            what = rng.randrange(6)
            if what == 0 and len(names) < 20:
                names.append(f"loaded{len(names)}-0")
                prefix = names[-1].removesuffix("-0")
                await pair.vpods(1, rng.randrange(1, 13), tenant=tenant, prefix=prefix)
            elif what == 1 and (adapters := await pair.adapters()):
                try:
                    await delete_pod(pair, rng.choice(adapters)["metadata"]["name"])
                except NotFound:
                    log.info("gone since it was listed")
            else:
                await pair.want(tenant, rng.choice(names), rng.randrange(1, 13))
            await asyncio.sleep(period_s)

    loading = asyncio.create_task(load())
    try:
        yield
        if loading.done():
            loading.result()
    finally:
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)


@pytest.mark.long
@on_the_real_one
async def test_both_replicas_are_upgraded_one_after_the_other_under_load_and_nothing_moves(
    backend: Backend, tmp_path: Path
):
    async with Pair(backend, tmp_path) as pair:
        # Nothing is moved for compaction within the test: what moves here moved without need.
        tenant = await scene(pair, scaleDownPeriodSeconds=3600)
        async with loaded(pair, tenant):
            for old in (pair.service, pair.second):
                stays = pair.second if old is pair.service else pair.service
                new = await pair.replica()
                async with pair.probed(stays) as probes:
                    started = asyncio.get_running_loop().time()
                    await pair.start(new)
                    # As a Service does: the new one is called once it is ready, the old one no
                    # more.
                    pair.serve_by(stays, new)
                    assert old.process is not None
                    assert await old.process.terminate() == 0
                    if old is pair.service:
                        pair.service = new
                    else:
                        pair.second = new
                    await pair.leader()
                    await asyncio.sleep(1.0)
                answered_all(probes, asyncio.get_running_loop().time() - started)
        await pair.settled()
        assert await pair.watcher.moves() == []


@pytest.mark.long
@on_the_real_one
async def test_two_leaders_by_misconfiguration_overcommit_nothing_and_one_of_them_puts_all_right(
    backend: Backend, tmp_path: Path
):
    async with Pair(backend, tmp_path, election=QUICK_ELECTION) as pair:
        tenant = await scene(pair, scaleDownPeriodSeconds=3600)
        await lead_beside(pair, pair.second)
        assert (await pair.service.state())["leading"]
        async with loaded(pair, tenant, period_s=0.05):
            await asyncio.sleep(10.0)
            assert (await pair.service.state())["leading"]
            assert (await pair.second.state())["leading"]
        breaches = await pair.watcher.breaches()
        assert [breach for breach in breaches if breach.startswith("I1")] == []
        log.info("of I2 and I4 while two led: %s", breaches)
        assert pair.second.process is not None
        await pair.second.process.terminate()
        pair.serve_by(pair.service)
        await pair.settled()
        await pair.watcher.forget()
        # And from here on all of them hold again.
        standing = published(pair)
        await pair.vpods(2, 8, tenant=tenant, prefix="late")
        await pair.settled()
        assert published(pair).keys() >= standing.keys()


async def lead_beside(pair: Pair, replica: Replica) -> None:
    """Starts ``replica`` again with a Lease of another name, which a role allows it: both lead."""
    assert replica.process is not None
    await replica.process.terminate()
    name = "another-name"
    role = {"name": name, "namespace": SYSTEM_NAMESPACE}
    account = {
        "kind": "ServiceAccount",
        "name": "vreplica-scheduler",
        "namespace": SYSTEM_NAMESPACE,
    }
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [name]}
    api = "rbac.authorization.k8s.io"
    await pair.backend.apply(
        [
            {
                "apiVersion": f"{api}/v1",
                "kind": "Role",
                "metadata": role,
                "rules": [{**rule, "verbs": ["get", "update"]}],
            },
            {
                "apiVersion": f"{api}/v1",
                "kind": "RoleBinding",
                "metadata": role,
                "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
                "subjects": [account],
            },
        ]
    )
    config = json.loads(replica.config.read_text())
    config["leaderElection"]["resourceName"] = name
    write_json(replica.config, config)
    await pair.start(replica)
    await replica.leads()


@pytest.mark.long
@on_the_real_one
async def test_a_leader_frozen_past_its_lease_while_placing_writes_no_ledger_when_it_wakes(
    backend: Backend, tmp_path: Path
):
    assert isinstance(backend, RealBackend)
    rng = random.Random(SEED)
    async with Pair(backend, tmp_path, election=QUICK_ELECTION) as pair:
        tenant = await scene(pair, scaleDownPeriodSeconds=3600)
        leader, other = await pair.leader()
        credential = credential_of(pair.credentials[leader.url])
        assert leader.process is not None
        for round_ in range(3):
            await pair.vpods(6, 4, tenant=tenant, prefix=f"round{round_}")
            for index in range(5):
                await pair.want(tenant, f"source-{index}", rng.randrange(4, 13))
            await asyncio.sleep(rng.uniform(0.0, 0.15))
            leader.process.pause()
            pair.serve_by(other)
            await other.leads(timeout_s=15.0)
            await pair.settled()
            led_at = len(pair.audit())
            for index in range(5):
                await pair.want(tenant, f"source-{index}", rng.randrange(4, 13))
            leader.process.resume()
            await follows(leader)
            await pair.settled()
            late = accepted_writes(pair.audit()[led_at:], credential)
            assert late == []
            # It leads again, for the next round.
            pair.serve_by(leader, other)
            assert other.process is not None
            await other.process.terminate()
            await leader.leads()
            await pair.start(other)


async def follows(replica: Replica) -> None:
    """Returns when it knows that it does not lead."""

    async def look() -> bool:
        return not (await replica.state())["leading"]

    await eventually(look, 10.0, f"{replica.url} follows")


def credential_of(kubeconfig: dict[str, Any]) -> str:
    """The id of its token, as the audit log shows it."""
    payload = kubeconfig["users"][0]["user"]["token"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return f"JTI={claims['jti']}"


def accepted_writes(events: list[dict[str, Any]], credential: str) -> list[str]:
    """Ledgers, statuses, scales and binds that the API server took from who holds that
    credential.
    """
    return [
        f"{event['verb']} {event['requestURI']}"
        for event in events
        if credential
        in event["user"].get("extra", {}).get("authentication.kubernetes.io/credential-id", [])
        and event["verb"] in {"create", "update", "patch", "delete"}
        and event["objectRef"]["resource"] not in {"leases", "events"}
        and event.get("responseStatus", {}).get("code", 0) < 300
    ]
