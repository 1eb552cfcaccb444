"""One replica as a whole: it starts, leads, hands over and stops in order."""

import asyncio
import errno
import logging
import random
import socket
from pathlib import Path

import orjson
import pytest

from extender.cli.main import main
from extender.config.model import (
    ClientConnectionConfig,
    Config,
    LeaderElectionConfig,
    Mode,
    ServerConfig,
)
from extender.config.profiles import WatchedContent
from extender.kube.api import Forbidden, OutcomeUnknown
from extender.service import app
from extender.service.app import Service
from extender.service.http.describe import StateQuery
from extender.service.reloading import Watched
from extender.telemetry.one_line import OneLineFormatter
from tests.kube.apiserver import kubeconfig
from tests.support.service import FaultApi, World, a_world, schedule, until, wall
from tests.support.steps import result_of


@pytest.mark.parametrize("name", ["LoopLag", "Reloading"])
async def test_what_runs_beside_the_service_stops_it_with_its_error_when_it_dies(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def fail(_self: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(getattr(app, name), "run", fail)
    client = ClientConnectionConfig(kubeconfig=kubeconfig(tmp_path, "http://127.0.0.1:1"))
    config = Config(server=ServerConfig(port=0), client_connection=client)
    watched = Watched(
        WatchedContent(config, (str(tmp_path / "config.yaml"),)), lambda: WatchedContent(config, ())
    )
    with pytest.raises(ExceptionGroup) as ended:
        async with asyncio.timeout(5):
            await app.serve(config, now=wall, rng=random.Random(1), watched=watched)
    assert ended.group_contains(RuntimeError, match="a defect")


@pytest.mark.looptime
async def test_of_two_replicas_one_leads_and_the_other_takes_over_at_once_when_it_stops():
    world = await a_world(0, 1)
    await world.vpod("a", 4)
    first = world.service(elect=True, seed=1)
    running = asyncio.create_task(first.run())
    await until(first.leading)
    async with world.serving(elect=True, seed=2) as second:
        await asyncio.sleep(30)
        assert (first.leading(), second.leading()) == (True, False)
        assert await world.lease_holder() == first.identity
        before = await world.status()
        running.cancel()
        await asyncio.wait({running})
        assert await world.lease_holder() == ""
        await until(second.leading, timeout_s=6)
        assert await world.status() == before, "a failover moves nothing"
        await world.vpod("b", 2)
        await until(lambda: _placed(world, "b"), timeout_s=2)


@pytest.mark.looptime
async def test_a_replica_that_leads_and_cannot_list_gives_its_lease_away(
    monkeypatch: pytest.MonkeyPatch,
):
    world = await a_world(0, 1)
    await world.vpod("a", 4)
    first = world.service(elect=True, seed=1)

    async def answers_nothing() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(first.informers, "relist_own_vpods", answers_nothing)
    running = asyncio.create_task(first.run())
    await asyncio.sleep(30)
    assert await world.lease_holder() == first.identity
    async with world.serving(elect=True, seed=2) as second:
        await until(second.leading, timeout_s=180)
        await until(world.placed, 4)
    with pytest.raises(ExceptionGroup) as ended:
        await running
    assert ended.group_contains(TimeoutError)


@pytest.mark.looptime
async def test_in_shadow_mode_the_service_compares_with_the_active_one_and_writes_nothing():
    world = await World.create(replicas=2, maxPods=4)
    async with world.serving(mode=Mode.SHADOW, elect=True, seed=2) as shadow:
        await world.pod(0)
        await asyncio.sleep(1)
        refused = await schedule(shadow, await world.pod_object(0), ["node-0"])
        assert "shadow mode writes nothing" in refused
        async with world.serving() as active, world.adapters(active):
            for number in range(5):
                await world.vpod(f"v{number}", 3)
                await asyncio.sleep(1)
            await asyncio.sleep(60)
        state = orjson.loads(orjson.dumps(result_of(shadow.state_steps(StateQuery()))))
    assert state["leading"] is False
    found = state["shadow"]
    # What a bind carries was decided before its pod was there: we, who see it bound, may choose
    # other pods.
    assert {outcome for outcome, count in found["decisions"].items() if count} <= {
        "Same",
        "OtherPods",
    }
    assert found["decisions"]["Same"] >= 3
    assert found["refusedWrites"].keys() <= {"bind", "create"}, (
        "a bind that was asked for, and its event"
    )


async def _placed(world: World, name: str) -> bool:
    return sum((await world.published(name)).values()) > 0


@pytest.mark.looptime
async def test_a_leader_cut_off_from_the_api_server_stops_leading_before_its_lease_ends():
    world = await World.create()
    service = world.service(elect=True)
    running = asyncio.create_task(service.run())
    await until(service.leading)
    world.api.fail("update", "leases", times=1000, before=OutcomeUnknown(0, "Timeout", "no answer"))
    await asyncio.sleep(15)
    assert not service.leading()
    assert not running.done(), "it goes on serving and competing"
    world.api.faults.clear()
    await until(service.leading, timeout_s=60)
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.looptime
async def test_a_replica_that_leads_again_goes_on_with_everything():
    world = await a_world(0)
    async with world.serving(elect=True) as service:
        await until(service.leading)
        pause = world.api.pause("patch", "pods")
        await world.vpod("a", 3)
        await pause.reached.wait()
        world.api.fail(
            "update", "leases", times=1000, before=OutcomeUnknown(0, "Timeout", "no answer")
        )
        await until(lambda: not service.leading())
        await asyncio.sleep(5)
        world.api.faults.clear()
        await until(lambda: _placed(world, "a"), timeout_s=60)


@pytest.mark.looptime
async def test_events_that_are_queued_when_it_stops_are_written_first():
    world = await a_world(0)
    async with world.serving():
        await world.vpod("a", 3)
        await until(lambda: _placed(world, "a"))
    assert len(await world.events("Scheduled")) == 1


@pytest.mark.looptime
async def test_a_replica_without_the_lease_serves_but_writes_nothing():
    world = await a_world(0)
    async with world.serving(elect=True, seed=1) as leader:
        await until(leader.leading)
        other = World()
        other.cluster, other.api = world.cluster, FaultApi(world.cluster)
        async with other.serving(elect=True, seed=2):
            await world.vpod("a", 3)
            await world.pod(1, None, slots=None, node="node-1")
            await asyncio.sleep(90)
            assert other.api.writes() == []


async def test_a_port_that_is_taken_is_an_error_that_names_it():
    world = await World.create()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = Config(
            server=ServerConfig(port=taken.getsockname()[1]),
            leader_election=LeaderElectionConfig(leader_elect=False),
        )
        with pytest.raises(OSError, match=r"Address already in use .*127\.0\.0\.1"):
            await Service(world.api, config, now=wall, rng=random.Random(1)).run()


# -- the command line ------------------------------------------------------------------------------


def a_config(folder: Path, text: str) -> str:
    file = folder / "config.yaml"
    file.write_text(
        f"apiVersion: config.vreplica.dev/v1alpha1\nkind: VReplicaSchedulerConfiguration\n{text}"
    )
    return str(file)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("server: {prot: 1}", "server.prot: unknown field", id="unknown-field"),
        pytest.param("server: {host: 0.0.0.0}", "client certificates", id="open-without-tls"),
        pytest.param("server: {port: 99999}", "server.port: must be a whole number", id="port"),
        pytest.param("server: [1]", "must be a mapping", id="not-a-mapping"),
        pytest.param(
            "leaderElection: {leaseDurationSeconds: 5}", "must be greater than", id="lease"
        ),
        pytest.param(
            "clientConnection: {kubeconfig: /nonexistent/kubeconfig}", "kubeconfig", id="kubeconfig"
        ),
    ],
)
def test_a_wrong_configuration_is_one_line_and_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
):
    assert main(["serve", "--config", a_config(tmp_path, text)]) == 1
    error = capsys.readouterr().err
    assert says in error
    assert error.startswith("vreplica: ")
    assert error.count("\n") == 1


def test_a_configuration_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]):
    assert main(["serve", "--config", "/nonexistent/config.yaml"]) == 1
    assert (
        capsys.readouterr().err
        == "vreplica: /nonexistent/config.yaml: cannot be read: No such file or directory\n"
    )


def test_an_operating_system_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def taken(_options: object) -> int:
        raise OSError(errno.EADDRINUSE, "address already in use")

    monkeypatch.setattr("extender.cli.commands.serve._run", taken)
    assert main(["serve", "--config", "x"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(
        f"vreplica: [Errno {errno.EADDRINUSE}] address already in use. Another program listens"
    )
    assert error.count("\n") == 1


def test_a_log_message_is_one_line_whatever_is_in_it():
    record = logging.LogRecord(
        "a", logging.INFO, "f", 1, "refused: %s", ("x\nERROR root: y\x1b[31m\u202e é",), None
    )
    line = OneLineFormatter("%(levelname)s %(message)s").format(record)
    assert line == "INFO refused: x\\nERROR root: y\\x1b[31m\\u202e é"


@pytest.mark.looptime
async def test_readiness_says_why_a_kind_is_not_listed():
    world = await World.create()
    world.api.fail(
        "list", "adapterpools", before=Forbidden(403, "Forbidden", "no rights"), times=99
    )
    service = world.service()
    running = asyncio.create_task(service.run())
    await asyncio.sleep(5)
    waits, why = service.health.problems()
    assert (waits, why.partition(". ")[0]) == (
        "caches not synced: adapterpools",
        "adapterpools.vreplica.dev may not be listed: no rights",
    )
    running.cancel()
    await asyncio.wait({running})
