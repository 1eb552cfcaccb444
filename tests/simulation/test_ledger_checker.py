"""Lost updates: a ledger is replaced only by who knew it, and who has made the API server see to
it.
"""

import random

import pytest

from extender.kube.api import PODS, ApiError, Binding, Obj, PatchType
from extender.lab.apiserver.cluster import Cluster
from extender.lab.apiserver.store import Change
from extender.lab.simulation.run import Trial, simulate
from extender.lab.simulation.world.facts import PLACEMENTS
from extender.lab.simulation.world.ledgers import LEDGER_PATH, RecordingApi, write_problems
from tests.simulation.checker_scene import in_virtual_time

pytestmark = pytest.mark.sim

UID = "/metadata/uid"


class Watched:
    """A pod with a ledger on an API server, two replicas, and what the checker says of their
    writes.
    """

    def __init__(self) -> None:
        self.cluster = Cluster(now=lambda: 0.0, rng=random.Random(1))
        self.first, self.second = RecordingApi(self.cluster), RecordingApi(self.cluster)
        self.found: list[str] = []

    async def furnish(self, *, node: str = "n") -> Obj:
        pod: Obj = {
            "metadata": {"name": "a-0", "annotations": {PLACEMENTS: "{}"}},
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                **({"nodeName": node} if node else {}),
            },
        }
        created = await self.cluster.create(PODS, "default", pod)
        self.cluster.server.store.subscribers.append(self._on_change)
        return created

    def _on_change(self, kind: tuple[str, str], change: Change) -> None:
        if kind == ("", "pods") and change.before is not None and change.after is not None:
            self.found += write_problems(change.before.obj, change.after.obj)

    async def write(self, by: RecordingApi, text: str, *tests: Obj) -> None:
        patch = [*tests, {"op": "add", "path": LEDGER_PATH, "value": text}]
        await by.patch(PODS, "default", "a-0", patch, patch_type=PatchType.JSON)


def compare(path: str, value: str) -> Obj:
    return {"op": "test", "path": path, "value": value}


@in_virtual_time
async def test_a_ledger_that_its_writer_has_read_and_compares_is_replaced_rightly():
    watched = Watched()
    pod = await watched.furnish()
    uid = compare(UID, pod["metadata"]["uid"])
    await watched.first.get(PODS, "default", "a-0")
    await watched.write(watched.first, '{"t/v":1}', uid, compare(LEDGER_PATH, "{}"))
    await watched.write(watched.first, '{"t/v":2}', uid, compare(LEDGER_PATH, '{"t/v":1}'))
    version = (await watched.first.get(PODS, "default", "a-0"))["metadata"]["resourceVersion"]
    await watched.write(watched.first, '{"t/v":3}', compare("/metadata/resourceVersion", version))
    assert watched.found == []


@in_virtual_time
async def test_a_ledger_that_nothing_compares_is_a_violation_though_nobody_has_come_between():
    watched = Watched()
    pod = await watched.furnish()
    await watched.first.get(PODS, "default", "a-0")
    await watched.write(watched.first, '{"t/v":1}', compare(UID, pod["metadata"]["uid"]))
    assert watched.found == ["ledger of a-0 is replaced whatever it is: {}"]


@in_virtual_time
async def test_a_ledger_that_is_written_to_any_pod_of_the_name_is_a_violation():
    watched = Watched()
    await watched.furnish()
    await watched.first.get(PODS, "default", "a-0")
    await watched.write(watched.first, '{"t/v":1}', compare(LEDGER_PATH, "{}"))
    assert watched.found == ["ledger of a-0 is written to whatever pod has the name"]


@in_virtual_time
async def test_what_another_has_added_since_the_writers_last_read_is_not_replaced():
    watched = Watched()
    uid = compare(UID, (await watched.furnish())["metadata"]["uid"])
    await watched.first.get(PODS, "default", "a-0")
    await watched.second.get(PODS, "default", "a-0")
    await watched.write(watched.first, '{"t/v":1}', uid, compare(LEDGER_PATH, "{}"))
    assert watched.found == []
    # It compares with what is there, which it was never told of: it has made the text up, and drops
    # what was added.
    await watched.write(watched.second, '{"t/w":1}', uid, compare(LEDGER_PATH, '{"t/v":1}'))
    assert watched.found == [
        'ledger of a-0 is replaced by who has not seen it: {"t/v":1} by {"t/w":1}'
    ]


@in_virtual_time
async def test_what_the_writer_is_told_of_while_its_write_is_under_way_comes_too_late():
    watched = Watched()
    uid = compare(UID, (await watched.furnish())["metadata"]["uid"])
    patch = [uid, {"op": "add", "path": LEDGER_PATH, "value": '{"t/w":1}'}]
    await watched.second.get(PODS, "default", "a-0")
    under_way = watched.second.patch(PODS, "default", "a-0", patch, patch_type=PatchType.JSON)
    await watched.first.get(PODS, "default", "a-0")
    await watched.write(watched.first, '{"t/v":1}', uid, compare(LEDGER_PATH, "{}"))
    await watched.second.get(PODS, "default", "a-0")
    await under_way
    assert watched.found[-1].startswith("ledger of a-0 is replaced by who has not seen it")


@in_virtual_time
async def test_a_binding_names_the_uid_and_the_version_of_its_pod():
    watched = Watched()
    await watched.furnish(node="")
    metadata = (await watched.first.get(PODS, "default", "a-0"))["metadata"]
    ledger = {PLACEMENTS: "{}"}
    await watched.first.bind(
        Binding("default", "a-0", "n", metadata["uid"], metadata["resourceVersion"], ledger)
    )
    assert watched.found == []


@in_virtual_time
async def test_a_binding_of_whatever_has_become_of_its_pod_is_a_violation():
    watched = Watched()
    pod = await watched.furnish(node="")
    await watched.first.get(PODS, "default", "a-0")
    await watched.first.bind(Binding("default", "a-0", "n", pod["metadata"]["uid"]))
    assert watched.found[-1] == "a-0 is bound whatever has become of it: compares ['uid']"


@in_virtual_time
async def test_a_write_that_the_server_refuses_replaces_nothing():
    watched = Watched()
    await watched.furnish()
    with pytest.raises(ApiError):
        await watched.write(watched.first, "{}", compare(LEDGER_PATH, "something else"))
    assert watched.found == []


def test_the_writes_of_a_whole_run_are_looked_at(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("extender.lab.simulation.world.ledgers.Request.knows", lambda *_: False)
    problems = simulate(Trial(1, events=20)).problems
    assert any("by who has not seen it" in problem for problem in problems)
