"""The configuration file while the service runs: live settings change together, the rest is told, a
broken file changes nothing.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.config import profiles
from extender.config.model import Config, Reload
from extender.config.profiles import WatchedContent, open_config
from extender.config.reload import merge
from extender.config.settings import SETTINGS
from extender.kube.budget import Budget, Lane
from extender.kube.ratelimit import TokenBucket
from extender.service.reloading import Reloading, Watched, change_of_budget, change_of_log
from extender.telemetry.logs import LogFormat, format_in_use, set_up
from extender.telemetry.metrics import Metrics
from tests.support.builders import NS
from tests.support.configs import config_from
from tests.support.service import World, filter_args, schedule

HEAD = "apiVersion: config.vreplica.dev/v1alpha1\nkind: VReplicaSchedulerConfiguration\n"


class Scene:
    """A file, and what is told of its changes."""

    metrics: Metrics

    def __init__(self, folder: Path, text: str = "") -> None:
        self.path = folder / "config.yaml"
        self.write(text)
        self.applied: list[Config] = []
        self.reloading = self.started()

    def read(self) -> WatchedContent:
        return open_config(str(self.path)).watched

    def started(self, before: Callable[[], None] = lambda: None) -> Reloading:
        """A service reads the file, does ``before``, and only then begins to watch."""
        watched = Watched(self.read(), self.read)
        before()
        self.metrics = Metrics()
        return Reloading(watched, apply=[self.applied.append], metrics=self.metrics)

    def write(self, text: str) -> None:
        """As kubectl or an editor does: a new file in the place of the old one."""
        new = self.path.with_suffix(".new")
        new.write_text(HEAD + text)
        new.replace(self.path)

    async def changed_to(self, text: str) -> Reloading:
        self.write(text)
        assert await self.reloading.reload_if_changed()
        return self.reloading

    def sample(self, name: str) -> list[str]:
        lines = self.metrics.render().decode().splitlines()
        return sorted(
            line.partition("_scheduler_")[2]
            for line in lines
            if line.startswith(f"vreplica_scheduler_{name}")
        )


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path, "filter: {narrowTo: 2}\n")


async def test_a_file_that_is_as_it_was_is_not_read(scene):
    assert not await scene.reloading.reload_if_changed()
    assert (scene.applied, scene.reloading.results.total()) == ([], 0)


async def test_live_settings_are_taken_together(scene):
    reloading = await scene.changed_to("filter: {narrowTo: 8}\nserver: {deadlineSeconds: 2}\n")
    (config,) = scene.applied
    assert (config.narrow_to, config.server.deadline_s) == (8, 2.0)
    assert reloading.config is config
    assert (reloading.waiting, reloading.problem) == ((), "")
    assert 'config_reloads_total{result="applied"} 1.0' in scene.sample("config_reloads")


async def test_what_needs_a_restart_is_told_and_the_live_settings_are_taken(scene, caplog):
    reloading = await scene.changed_to("filter: {narrowTo: 8}\nleaderElection: {buckets: 4}\n")
    (config,) = scene.applied
    assert (config.narrow_to, config.leader_election.buckets) == (8, 1)
    assert reloading.describe()["needsRestart"] == ["leaderElection.buckets"]
    assert "needs a restart: leaderElection.buckets" in caplog.text
    assert scene.sample("config_needs_restart") == [
        'config_needs_restart{setting="leaderElection.buckets"} 1.0'
    ]


async def test_a_restart_is_no_longer_needed_once_the_file_says_again_what_is_in_force(scene):
    await scene.changed_to("filter: {narrowTo: 2}\nleaderElection: {buckets: 4}\n")
    reloading = await scene.changed_to("filter: {narrowTo: 2}\n")
    assert (scene.applied, reloading.waiting) == ([], ())
    assert scene.sample("config_needs_restart") == []


async def test_a_broken_file_changes_nothing_and_says_why(scene, caplog):
    reloading = await scene.changed_to("filter: {narrowto: 8}\n")
    assert (scene.applied, reloading.config.narrow_to) == ([], 2)
    assert (
        "filter.narrowto: unknown field, line 3, column 10; did you mean narrowTo?"
        in reloading.problem
    )
    assert reloading.problem in caplog.text
    assert scene.sample("config_last_reload_successful") == ["config_last_reload_successful 0.0"]
    reloading = await scene.changed_to("filter: {narrowTo: 2}\n")
    assert (reloading.problem, scene.applied) == ("", [])
    assert scene.sample("config_last_reload_successful") == ["config_last_reload_successful 1.0"]


@pytest.mark.parametrize(
    "error", [RecursionError("too deep"), RuntimeError("a plugin's own"), UnicodeError("no")]
)
async def test_whatever_reading_a_file_dies_of_the_old_settings_stay_and_the_next_file_is_taken(
    scene, error, monkeypatch
):
    def fail():
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(scene.reloading, "_read", fail)
        refused = await scene.changed_to("filter: {narrowTo: 9}\n")
    assert str(error) in refused.problem
    assert not scene.applied
    await scene.changed_to("filter: {narrowTo: 7}\n")
    assert [config.narrow_to for config in scene.applied] == [7]


async def test_a_broken_file_is_told_once(scene):
    await scene.changed_to("server: [")
    assert not await scene.reloading.reload_if_changed()
    assert scene.reloading.results["refused"] == 1


async def test_a_file_that_is_gone_for_a_moment_changes_nothing(scene):
    scene.path.unlink()
    assert await scene.reloading.reload_if_changed()
    assert "cannot be read" in scene.reloading.problem
    reloading = await scene.changed_to("filter: {narrowTo: 3}\n")
    assert (reloading.problem, reloading.config.narrow_to) == ("", 3)


async def test_profiles_need_a_restart_for_they_decide_what_stays(scene):
    reloading = await scene.changed_to(
        "filter: {narrowTo: 2}\nprofiles: [{name: mine, scores: [{name: ZoneSpread}]}]\n"
    )
    assert (scene.applied, reloading.waiting) == ([], ("profiles",))


IMPORTING = "profiles: [{name: mine, knativeConfigMaps: {scheduler: s.yaml}}]\n"


def write_map(folder: Path, weight: int) -> None:
    new = folder / "s.yaml.new"
    new.write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s}\ndata:\n"
        f'  priorities: \'[{{"Name": "LowestOrdinalPriority", "Weight": {weight}}}]\'\n'
    )
    new.replace(folder / "s.yaml")


async def test_a_config_map_that_a_profile_is_read_from_is_looked_at_too(tmp_path):
    write_map(tmp_path, 2)
    scene = Scene(tmp_path, IMPORTING)
    (tmp_path / "s.yaml").touch()
    await scene.reloading.reload_if_changed()
    assert not scene.reloading.waiting
    write_map(tmp_path, 3)
    assert await scene.reloading.reload_if_changed()
    assert scene.reloading.waiting == ("profiles",)


async def test_a_file_that_is_replaced_while_the_service_starts_is_taken(scene):
    reloading = scene.started(before=lambda: scene.write("filter: {narrowTo: 8}\n"))
    assert await reloading.reload_if_changed()
    assert reloading.config.narrow_to == 8
    assert not await reloading.reload_if_changed()


@pytest.mark.parametrize("step", ["_digest_of", "load_profiles"])
async def test_a_config_map_that_is_replaced_before_or_after_a_profile_is_read_from_it_is_told(
    tmp_path, monkeypatch, step
):
    write_map(tmp_path, 2)
    scene = Scene(tmp_path, IMPORTING)
    taken = getattr(profiles, step)

    def replaced_meanwhile(*arguments: Any) -> Any:
        found = taken(*arguments)
        write_map(tmp_path, 3)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(profiles, step, replaced_meanwhile)
        reloading = scene.started()
    assert await reloading.reload_if_changed()
    assert reloading.waiting == ("profiles",)


async def test_a_file_that_is_new_and_is_replaced_while_it_is_read_is_read_again(
    tmp_path, monkeypatch
):
    write_map(tmp_path, 2)
    scene = Scene(tmp_path)
    loaded = profiles.load_profiles

    def replaced_meanwhile(*arguments: Any) -> Any:
        found = loaded(*arguments)
        write_map(tmp_path, 3)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(profiles, "load_profiles", replaced_meanwhile)
        reloading = await scene.changed_to(IMPORTING)
    assert await reloading.reload_if_changed()
    assert not await reloading.reload_if_changed()


TLS = {"certFile": "c", "keyFile": "k", "clientCAFile": "ca", "allowedClients": ["one"]}


def config_of(**sections: object) -> Config:
    head = {"apiVersion": "config.vreplica.dev/v1alpha1", "kind": "VReplicaSchedulerConfiguration"}
    return config_from({**head, **sections})


def test_live_settings_that_only_a_restart_makes_safe_wait_for_it():
    """Without its list, the address of today would be open to every client of the CA until the
    restart.
    """
    now = config_of(server={"host": "0.0.0.0", "tls": TLS}, filter={"narrowTo": 1})
    new = config_of(filter={"narrowTo": 5})
    merged = merge(now, new)
    assert (merged.config, merged.taken) == (now, ())
    assert {"server.host", "server.tls.allowedClients", "filter.narrowTo"} <= set(merged.waiting)


def test_clients_that_are_allowed_change_at_work():
    now = config_of(server={"host": "0.0.0.0", "tls": TLS})
    new = config_of(server={"host": "0.0.0.0", "tls": {**TLS, "allowedClients": ["two"]}})
    merged = merge(now, new)
    assert merged.config == new
    assert (merged.taken, merged.waiting) == (("server.tls.allowedClients",), ())


def test_no_setting_that_decisions_rest_on_is_live():
    live = {entry.path for entry in SETTINGS if entry.setting.reload is Reload.LIVE}
    assert live == {
        "server.deadlineSeconds",
        "server.shutdownDelaySeconds",
        "server.allowedHosts",
        "server.tls.allowedClients",
        "schedule.allowedServiceAccounts",
        "schedule.tls.allowedClients",
        "adapters.allowedServiceAccounts",
        "clientConnection.qps",
        "clientConnection.burst",
        "scaleCache.refreshPeriodSeconds",
        "scaleCache.maxEntries",
        "schedulerNames",
        "filter.narrowTo",
        "logging.level",
        "logging.format",
    }


async def test_the_level_of_the_log_changes_and_comes_back(caplog):
    root = logging.getLogger()
    before = root.level
    try:
        root.setLevel(logging.WARNING)
        take = change_of_log(config_of())
        take(config_of(logging={"level": "debug"}))
        assert root.level == logging.DEBUG
        take(config_of())
        assert root.level == logging.WARNING
    finally:
        root.setLevel(before)


async def test_the_format_of_the_log_changes_and_comes_back(monkeypatch):
    root = logging.Logger("root")  # noqa: LOG001 - the real one has pytest's handlers
    monkeypatch.setattr(logging, "getLogger", lambda: root)
    set_up("info", LogFormat.TEXT)
    take = change_of_log(config_of())
    take(config_of(logging={"format": "json"}))
    assert format_in_use() is LogFormat.JSON
    take(config_of())
    assert format_in_use() is LogFormat.TEXT


@pytest.mark.looptime
async def test_another_rate_holds_from_now_on_and_what_was_earned_stays():
    loop = asyncio.get_running_loop()
    bucket = TokenBucket(1.0, 2)
    await bucket.acquire()
    await bucket.acquire()
    bucket.change(10.0, 5)
    began = loop.time()
    for _ in range(5):
        await bucket.acquire()
    assert loop.time() - began == pytest.approx(0.5, abs=0.01)
    await asyncio.sleep(100)
    bucket.change(10.0, 1)
    began = loop.time()
    await bucket.acquire()
    await bucket.acquire()
    assert loop.time() - began == pytest.approx(0.1, abs=0.01)


@pytest.mark.looptime
async def test_the_budget_takes_its_rates_from_the_configuration():
    budget = Budget(1.0, 1)
    change_of_budget(budget)(config_of(clientConnection={"qps": 100, "burst": 3}))
    began = asyncio.get_running_loop().time()
    for _ in range(11):
        await budget.admit(Lane.WRITES)
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.1, abs=0.02)


@pytest.mark.looptime
async def test_a_running_service_answers_by_the_settings_that_it_was_given_last():
    """What ``Service.reconfigure`` is for: whose pods are bound, and how many nodes pass."""
    world = await World.create()
    async with world.serving() as service:
        await world.pod(0)
        await asyncio.sleep(1)
        pod, nodes = await world.pod_object(0), ["node-0", "node-1", "node-2"]
        service.reconfigure(config_of(filter={"narrowTo": 1}, schedulerNames=["another"]))
        answer = orjson.loads(service.verbs.filter(filter_args(pod, nodes))[0])
        assert len(answer["NodeNames"]) == 1
        assert "OtherScheduler" in await schedule(service, pod, nodes)
        service.reconfigure(config_of())
        assert await schedule(service, pod, nodes) == ""


@pytest.mark.looptime
async def test_a_running_autoscaler_reads_a_scale_again_by_the_period_that_it_was_given_last():
    world = await World.create(replicas=3)
    async with world.serving() as service:
        scales = service.autoscaler.scales
        await scales.get_scale(NS, "dispatcher")
        before = world.api.count("get", "statefulsets/scale")
        await asyncio.sleep(30)
        service.reconfigure(config_of(scaleCache={"refreshPeriodSeconds": 20}))
        await scales.get_scale(NS, "dispatcher")
        assert world.api.count("get", "statefulsets/scale") == before + 1
