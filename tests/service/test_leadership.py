"""Pools led in buckets, on the elector and caches alone: no loops, an API in memory, virtual time."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from extender.core.bucket import Bucket, bucket_of
from extender.core.names import BUCKETS_ANNOTATION, PREFERRED_HOLDER_ANNOTATION
from extender.kube.api import Obj, OutcomeUnknown, Resource
from extender.service.caches import Caches
from extender.service.config import Config, LeaderElectionConfig
from extender.service.leadership import Leadership
from tests.kube.fakes import StoreApi, wall

pytestmark = pytest.mark.looptime

NS = "vreplica-system"
NAME = "vreplica-scheduler"
POOLS = [f"adapters/pool-{number}" for number in range(12)]


def installed(buckets: int) -> StoreApi:
    """An API server with the Leases as they are installed."""
    api = StoreApi(delay_s=0.01)
    for index in range(buckets):
        name = Bucket(index, buckets).lease_name(NAME)
        api.objects["leases", NS, name] = {
            "metadata": {"namespace": NS, "name": name, "resourceVersion": "0"},
            "spec": {},
        }
    return api


class Process:
    """One replica: what it leads, and which buckets' loops run."""

    def __init__(self, api: StoreApi, name: str, buckets: int = 4) -> None:
        election = LeaderElectionConfig(buckets=buckets)
        self.api = StoreApi(objects=api.objects, delay_s=0.01)
        self.api._store = api._store  # type: ignore[method-assign]
        rng = random.Random(name)
        self.leadership = Leadership(
            self.api, Caches(), Config(leader_election=election), identity=name, now=wall, rng=rng
        )
        self.running: list[Bucket] = []
        self.ended: list[Bucket] = []
        self.task = asyncio.create_task(self.leadership.run(self.lead))

    async def lead(self, bucket: Bucket) -> None:
        assert bucket in self.leadership.buckets_led()
        self.leadership.began(bucket)
        self.running.append(bucket)
        try:
            await asyncio.Event().wait()
        finally:
            assert bucket not in self.leadership.buckets_led(), "leads while its loops end"
            self.running.remove(bucket)
            self.ended.append(bucket)

    def pools(self) -> list[str]:
        return [pool for pool in POOLS if self.leadership.leads(pool)]

    def kill(self) -> None:
        self.api.down = True
        self.task.cancel()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


def annotations(api: StoreApi, lease: str = NAME) -> dict[str, str]:
    return dict(api.objects["leases", NS, lease]["metadata"].get("annotations") or {})


def assert_led_once(processes: Sequence[Process], *, all_of_them: bool = False) -> None:
    leaders = {pool: [p.leadership.identity for p in processes if p.leadership.leads(pool)] for pool in POOLS}
    assert {pool: names for pool, names in leaders.items() if len(names) > 1} == {}
    running = {pool: sum(b.has(pool) for p in processes for b in p.running) for pool in POOLS}
    assert {pool: times for pool, times in running.items() if times > 1} == {}
    if all_of_them:
        assert {pool: names for pool, names in leaders.items() if len(names) != 1} == {}


async def test_a_single_replica_leads_every_bucket_at_once():
    one = Process(installed(4), "one")
    await asyncio.sleep(3)
    assert one.pools() == POOLS
    assert one.leadership.leader(POOLS[0]) == "one"
    await one.stop()
    assert one.pools() == []


@pytest.mark.parametrize("replicas", [2, 3, 4])
async def test_replicas_share_the_buckets_evenly_and_leave_it_at_that(replicas: int):
    api = installed(8)
    group = [Process(api, f"r{number}", 8) for number in range(replicas)]
    for _ in range(120):
        await asyncio.sleep(1)
        assert_led_once(group)
    assert_led_once(group, all_of_them=True)
    shares = sorted(len(process.running) for process in group)
    assert shares[-1] - shares[0] <= 1
    before = [list(process.running) for process in group]
    await asyncio.sleep(120)
    assert [process.running for process in group] == before
    assert not any(PREFERRED_HOLDER_ANNOTATION in annotations(api, name[2]) for name in api.objects)


async def test_while_a_bucket_changes_hands_the_others_are_led_on():
    api = installed(4)
    one = Process(api, "one")
    await asyncio.sleep(3)
    two = Process(api, "two")
    given: list[Bucket] = []
    longest = 0.0
    unled_since: dict[str, float] = {}
    for _ in range(600):
        await asyncio.sleep(0.1)
        now = asyncio.get_running_loop().time()
        unled = [pool for pool in POOLS if not (one.leadership.leads(pool) or two.leadership.leads(pool))]
        assert len({bucket_of(pool, 4) for pool in unled}) <= 1
        unled_since = {pool: unled_since.get(pool, now) for pool in unled}
        longest = max([longest, *(now - since for since in unled_since.values())])
        given = one.ended
    assert len(given) == 2
    assert longest < 3.0
    assert_led_once([one, two], all_of_them=True)


async def test_a_lease_given_up_for_one_is_not_taken_by_a_third():
    api = installed(2)
    one = Process(api, "one", 2)
    await asyncio.sleep(3)
    # The third would come first: it looks again and again, and nobody has told it of the others.
    third, two = Process(api, "third", 2), Process(api, "two", 2)
    third.leadership._share = asyncio.Event().wait  # type: ignore[assignment,method-assign]
    await asyncio.sleep(60)
    assert (len(one.running), len(two.running), len(third.running)) == (1, 1, 0)


async def test_who_was_given_a_bucket_and_has_died_is_not_waited_for_long():
    api = installed(2)
    one = Process(api, "one", 2)
    await asyncio.sleep(3)
    lease = api.objects["leases", NS, NAME]
    noted = {
        **lease["metadata"],
        "annotations": {PREFERRED_HOLDER_ANNOTATION: "dead", BUCKETS_ANNOTATION: "2"},
    }
    api._store("update", ("leases", NS, NAME), {**lease, "metadata": noted})
    await asyncio.sleep(5)
    assert one.ended  # it carries two, and the one that asks carries none
    await asyncio.sleep(10)
    assert one.pools() == POOLS


async def test_who_does_not_give_takes_the_question_off_the_lease():
    api = installed(2)
    pair = [Process(api, "one", 2), Process(api, "two", 2)]
    await asyncio.sleep(60)
    before = [list(process.running) for process in pair]
    assert [len(running) for running in before] == [1, 1]
    lease = api.objects["leases", NS, NAME]
    other = "two" if lease["spec"]["holderIdentity"] == "one" else "one"
    noted = {
        **lease["metadata"],
        "annotations": {PREFERRED_HOLDER_ANNOTATION: other, BUCKETS_ANNOTATION: "2"},
    }
    api._store("update", ("leases", NS, NAME), {**lease, "metadata": noted})
    for _ in range(100):
        await asyncio.sleep(0.1)
        assert [process.running for process in pair] == before
    assert annotations(api) == {BUCKETS_ANNOTATION: "2"}


async def test_a_killed_replicas_buckets_are_taken_over_and_the_others_stay():
    api = installed(6)
    group = [Process(api, f"r{number}", 6) for number in range(3)]
    await asyncio.sleep(90)
    first, *others = group
    kept = [list(process.running) for process in others]
    first.kill()
    await asyncio.sleep(20)
    assert_led_once(others, all_of_them=True)
    for process, before in zip(others, kept, strict=True):
        assert set(before) <= set(process.running)


async def test_a_stopped_replicas_buckets_are_taken_over_within_seconds():
    api = installed(4)
    group = [Process(api, f"r{number}") for number in range(2)]
    await asyncio.sleep(90)
    assert {len(process.running) for process in group} == {2}
    await group[0].stop()
    await asyncio.sleep(3)
    assert group[1].pools() == POOLS


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (2, 5)])
async def test_while_another_number_of_buckets_is_rolled_out_no_pool_has_two_leaders(before: int, after: int):
    api = installed(before)
    old = [Process(api, f"old{number}", before) for number in range(3)]
    await asyncio.sleep(60)
    group = list(old)
    for number, process in enumerate(old):
        group.append(Process(api, f"new{number}", after))
        for _ in range(50):
            await asyncio.sleep(0.1)
            assert_led_once(group)
        await process.stop()
        for _ in range(50):
            await asyncio.sleep(0.1)
            assert_led_once(group)
    await asyncio.sleep(120)
    assert_led_once(group, all_of_them=True)
    assert all(process.running for process in group[3:]) is (after > 2)


class CutOffFromTheFirst(StoreApi):
    """Reads no more what the first bucket's Lease says."""

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> Obj:
        if name == NAME:
            raise OutcomeUnknown(0, "ConnectionFailed", "cut off")
        return await super().get(resource, namespace, name, subresource=subresource)


async def test_who_cannot_read_how_others_count_stops_before_one_who_counts_otherwise_begins():
    api = installed(4)
    pair = [Process(api, "one"), Process(api, "two")]
    await asyncio.sleep(60)
    first, second = sorted(pair, key=lambda process: Bucket(0, 4) not in process.running)
    assert len(second.running) == 2
    second.leadership.electors[0]._api = CutOffFromTheFirst(objects=api.objects, delay_s=0.01)
    await first.stop()
    third = Process(api, "third", 1)
    group = [second, third]
    for _ in range(300):
        await asyncio.sleep(0.1)
        assert_led_once(group)
    assert third.pools() == POOLS
    assert second.pools() == []


async def test_what_others_count_by_is_looked_at_when_it_acts_and_not_only_when_it_renews():
    one = Process(installed(2), "one", 2)
    await asyncio.sleep(3)
    assert one.pools() == POOLS
    one.leadership.electors[0].read_at -= 15  # as after a pause that its own Lease has outlasted
    assert {bucket_of(pool, 2) for pool in one.pools()} == {0}


@pytest.mark.parametrize("seed", range(8))
async def test_under_random_outages_and_kills_no_pool_has_two_leaders_and_in_the_end_each_has_one(seed: int):
    rng = random.Random(seed)
    total = rng.choice((2, 3, 4))
    api = installed(total)
    group: list[Process] = []
    for step in range(250):
        await asyncio.sleep(rng.random() * 2)
        assert_led_once(group)
        dice = rng.random()
        if dice < 0.08 and len(group) < 4:
            counts = rng.choice((total, total, total, 1, total + 1))
            group.append(Process(api, f"p{step}", counts))
        elif dice < 0.14 and group:
            way = rng.choice(group).api
            way.down = not way.down
        elif dice < 0.17 and group:
            group.pop(rng.randrange(len(group))).kill()
        elif dice < 0.20 and group:
            await group.pop(rng.randrange(len(group))).stop()
        elif dice < 0.22:
            api.lose["update"] += 1
    for process in group:
        process.api.down = False
    group.append(Process(api, "last", total))
    await asyncio.sleep(150)
    assert_led_once(group, all_of_them=True)


async def test_of_a_later_bucket_nobody_can_say_that_it_was_never_led():
    one = Process(installed(2), "one", 2)
    await asyncio.sleep(3)
    founded = {bucket_of(pool, 2) for pool in POOLS if one.leadership.founded(pool)}
    assert founded == {0}
    later = next(pool for pool in POOLS if bucket_of(pool, 2) == 1)
    assert not one.leadership.alone(later)
    await asyncio.sleep(20)
    assert one.leadership.alone(later)
