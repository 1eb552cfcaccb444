import asyncio
import random
from typing import Any

import pytest

from extender.kube.api import LEASES, ApiError, Conflict
from extender.kube.leader import LeaderElector, LeadStuck, new_identity
from extender.kube.lease import RELEASED_S, LeaseConfig
from extender.kube.seen_lease import Candidacy
from extender.model.errors import HistoryReplaced
from extender.model.timestamps import micro_time
from tests.kube.fakes import StoreApi, wall

pytestmark = pytest.mark.looptime

LEASE = LeaseConfig(namespace="ns")
KEY = ("leases", "ns", "vreplica-scheduler")


class Replica:
    """One process: an elector, and what its lead() did."""

    def __init__(
        self, api: Any, identity: str, seed: int = 1, *, nothing_written: bool = True
    ) -> None:
        rng = random.Random(seed)
        self.elector = LeaderElector(
            api,
            LEASE,
            identity=identity,
            now=wall,
            rng=rng,
            candidacy=Candidacy(nothing_written=lambda: nothing_written),
        )
        self.log: list[str] = []
        self.task = asyncio.create_task(self.elector.run(self.lead))

    async def lead(self) -> None:
        self.log.append("start")
        try:
            await asyncio.Event().wait()
        finally:
            self.log.append("stop")

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def kill(self) -> None:
        """End without a word to the API server."""
        self.elector._api = StoreApi(down=True)
        self.task.cancel()


def another_way(api: StoreApi, **how: Any) -> StoreApi:
    """The same store by another connection, with faults of its own."""
    way = StoreApi(objects=api.objects, **how)
    way._store = api._store  # type: ignore[method-assign]
    return way


def installed() -> dict[tuple[str, str, str], Any]:
    """The Lease as it is installed: nobody has ever held it."""
    metadata = {"namespace": "ns", "name": "vreplica-scheduler", "resourceVersion": "0"}
    return {KEY: {"metadata": metadata, "spec": {}}}


@pytest.fixture
def api() -> StoreApi:
    return StoreApi(installed(), delay_s=0.01)


async def start_two(api: StoreApi) -> list[Replica]:
    """The first of them leads. Not a fixture: those do not live in virtual time."""
    pair = [Replica(api, "one"), Replica(api, "two", 2)]
    await asyncio.sleep(0.5)
    return pair


def leads(replica: Replica) -> bool:
    return replica.elector.is_leader


def spec(api: StoreApi) -> dict[str, Any]:
    found = api.objects[KEY]["spec"]
    assert isinstance(found, dict)
    return found


async def put_name(api: StoreApi, holder: str) -> None:
    """What a person does who edits the Lease."""
    edited = {**api.objects[KEY], "spec": {**spec(api), "holderIdentity": holder}}
    await api.update(LEASES, "ns", "vreplica-scheduler", edited)


async def test_of_two_candidates_one_leads_and_the_other_knows_who(api: StoreApi):
    replicas = await start_two(api)
    one, two = replicas
    assert [r.elector.is_leader for r in replicas] == [True, False]
    await asyncio.sleep(5)
    assert two.elector.leader_identity == "one"
    assert one.log == ["start"]
    assert two.log == []
    assert spec(api) | {"renewTime": "", "acquireTime": ""} == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
        "renewTime": "",
        "acquireTime": "",
    }


async def test_the_leader_renews_every_two_seconds_and_keeps_its_acquire_time(api: StoreApi):
    replicas = await start_two(api)
    acquired = spec(api)["acquireTime"]
    updates = api.count("update")
    await asyncio.sleep(100)
    assert 48 <= api.count("update") - updates <= 51
    assert spec(api)["acquireTime"] == acquired
    assert spec(api)["renewTime"] > acquired
    assert replicas[0].log == ["start"]


async def test_a_cancelled_leader_stops_first_and_then_gives_the_lease_up(api: StoreApi):
    replicas = await start_two(api)
    one, two = replicas
    await one.stop()
    assert one.log == ["start", "stop"]
    assert not leads(one)
    assert (spec(api)["holderIdentity"], spec(api)["leaseDurationSeconds"]) == ("", 1)
    await asyncio.sleep(2.5)
    assert leads(two)
    assert (spec(api)["holderIdentity"], spec(api)["leaseTransitions"]) == ("two", 1)


async def test_a_killed_leader_is_followed_after_its_lease_has_run_out(api: StoreApi):
    replicas = await start_two(api)
    one, two = replicas
    await asyncio.sleep(10)
    one.kill()
    await asyncio.sleep(12)
    assert not leads(two)
    await asyncio.sleep(8)
    assert leads(two)


async def test_anothers_clock_does_not_matter(api: StoreApi):
    spec = {"holderIdentity": "old", "leaseDurationSeconds": 15, "leaseTransitions": 4}
    past_and_future = [
        {"renewTime": "1999-01-01T00:00:00.000000Z"},
        {"renewTime": "2999-01-01T00:00:00.000000Z"},
    ]
    for times in past_and_future:
        api.objects[KEY] = {
            "metadata": {"name": KEY[2], "resourceVersion": "0"},
            "spec": spec | times,
        }
        replica = Replica(api, "new")
        await asyncio.sleep(14.5)
        assert not leads(replica)
        await asyncio.sleep(5)
        assert leads(replica)
        await replica.stop()


async def test_cut_off_from_the_server_the_leader_stops_before_another_can_start(api: StoreApi):
    replicas = await start_two(api)
    one, two = replicas
    await asyncio.sleep(10)
    one.elector._api = StoreApi(down=True)
    await asyncio.sleep(10.5)
    assert one.log == ["start", "stop"]
    assert not leads(two)
    await asyncio.sleep(10)
    assert leads(two)
    one.elector._api = api
    await asyncio.sleep(10)
    assert not leads(one)
    assert one.elector.leader_identity == "two"


async def test_a_short_outage_does_not_end_leadership(api: StoreApi):
    replicas = await start_two(api)
    await asyncio.sleep(10)
    api.down = True
    await asyncio.sleep(7)
    api.down = False
    await asyncio.sleep(20)
    assert replicas[0].log == ["start"]
    assert replicas[0].elector.errors >= 3


async def test_a_renewal_whose_answer_is_lost_does_not_end_leadership(api: StoreApi):
    replicas = await start_two(api)
    api.lose["update"] = 2
    await asyncio.sleep(20)
    assert replicas[0].log == ["start"]
    assert replicas[0].elector.still_leading()


async def test_a_process_that_slept_through_its_lease_knows_before_it_acts(api: StoreApi):
    replicas = await start_two(api)
    one = replicas[0].elector
    assert one.still_leading()
    one.fenced_until = asyncio.get_running_loop().time() - 0.001
    assert one.is_leader
    assert not one.still_leading()


async def test_a_suspended_machine_whose_monotonic_clock_stood_still_knows_too(api: StoreApi):
    ahead_s = 0.0
    elector = LeaderElector(
        api, LEASE, identity="one", now=lambda: wall() + ahead_s, rng=random.Random(1)
    )
    task = asyncio.create_task(elector.run(asyncio.Event().wait))  # type: ignore[arg-type]
    await asyncio.sleep(1)
    assert elector.still_leading()
    ahead_s = 20.0
    assert not elector.still_leading()
    await asyncio.sleep(3)
    assert elector.still_leading()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_who_was_suspended_while_another_led_begins_anew(api: StoreApi):
    """The other one has given the Lease up again, but what it has written was not seen."""
    one = Replica(api, "one")
    ahead_s = 0.0
    one.elector._now = lambda: wall() + ahead_s
    await asyncio.sleep(5)
    assert one.log == ["start"]
    since = one.elector.leading_since
    ahead_s = 60.0
    for identity, duration_s in (("two", 15), ("", RELEASED_S)):
        held = {
            **spec(api),
            "holderIdentity": identity,
            "leaseDurationSeconds": duration_s,
            "renewTime": micro_time(wall() + ahead_s),
            "leaseTransitions": 1,
        }
        await api.update(LEASES, "ns", KEY[2], {**api.objects[KEY], "spec": held})
    await asyncio.sleep(2.5)
    assert one.log[:2] == ["start", "stop"]
    await asyncio.sleep(20)
    assert one.log == ["start", "stop", "start"]
    assert one.elector.still_leading()
    assert one.elector.leading_since > since
    await one.stop()


async def test_seeing_another_holder_ends_leadership_at_once_and_it_competes_again(api: StoreApi):
    replicas = await start_two(api)
    usurped = {**api.objects[KEY], "spec": spec(api) | {"holderIdentity": "person"}}
    await api.update(LEASES, "ns", KEY[2], usurped)
    await asyncio.sleep(2.5)
    assert replicas[0].log == ["start", "stop"]
    assert replicas[0].elector.leader_identity == "person"
    await asyncio.sleep(20)
    assert sum(r.elector.is_leader for r in replicas) == 1


async def test_lead_that_returns_releases_the_lease_and_ends_the_run(api: StoreApi):
    async def lead() -> None:
        await asyncio.sleep(5)

    elector = LeaderElector(api, LEASE, identity="one", now=wall, rng=random.Random(1))
    await elector.run(lead)
    assert spec(api)["holderIdentity"] == ""


async def test_lead_that_raises_releases_the_lease_and_raises_from_run(api: StoreApi):
    async def lead() -> None:
        raise ZeroDivisionError

    elector = LeaderElector(api, LEASE, identity="one", now=wall, rng=random.Random(1))
    with pytest.raises(ZeroDivisionError):
        await elector.run(lead)
    assert spec(api)["holderIdentity"] == ""


async def test_lead_that_will_not_stop_ends_the_run_with_the_lease_still_held(api: StoreApi):
    async def stubborn() -> None:
        for _ in range(2):
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                continue

    elector = LeaderElector(api, LEASE, identity="one", now=wall, rng=random.Random(1))
    task = asyncio.create_task(elector.run(stubborn))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(LeadStuck):
        await task
    assert not elector.still_leading()
    assert spec(api)["holderIdentity"] == "one"


async def test_cancelled_while_its_acquiring_write_is_on_the_way_it_gives_up_what_it_got(
    api: StoreApi,
):
    elector = LeaderElector(api, LEASE, identity="one", now=wall, rng=random.Random(1))
    api.lose["update"] = 1
    task = asyncio.create_task(elector.run(asyncio.Event().wait))  # type: ignore[arg-type]
    await asyncio.sleep(0.5)
    assert spec(api)["holderIdentity"] == "one"
    assert not elector.is_leader
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert spec(api)["holderIdentity"] == ""


@pytest.mark.parametrize(
    "error", [Conflict(409, "Conflict", ""), ApiError(500, "InternalError", "")]
)
async def test_a_failed_try_is_repeated(api: StoreApi, error: ApiError):
    api.fail["update"].append(error)
    replica = Replica(api, "one")
    await asyncio.sleep(5)
    assert leads(replica)
    await replica.stop()


@pytest.mark.parametrize("seed", range(6))
async def test_under_random_outages_never_two_lead_and_in_the_end_one_does(seed: int):
    rng = random.Random(seed)
    stores = StoreApi(installed(), delay_s=0.05)

    class Flaky(StoreApi):
        """A way of its own to the shared store, up or down."""

        async def _enter(self, verb: str) -> None:
            await super()._enter(verb)
            if rng.random() < 0.1:
                stores.lose["update"] = 1

    ways = [Flaky(objects=stores.objects, lose=stores.lose, delay_s=0.05) for _ in range(3)]
    for way in ways:
        way._store = stores._store  # type: ignore[method-assign]
    group = [Replica(way, f"r{i}", seed * 10 + i) for i, way in enumerate(ways)]
    for _ in range(200):
        await asyncio.sleep(rng.random() * 2)
        if rng.random() < 0.1:
            way = rng.choice(ways)
            way.down = not way.down
        assert sum(r.elector.still_leading() for r in group) <= 1
        assert sum(r.log.count("start") - r.log.count("stop") for r in group) <= 1
    for way in ways:
        way.down = False
    await asyncio.sleep(60)
    assert sum(r.elector.still_leading() for r in group) == 1
    for replica in group:
        await replica.stop()
    assert stores.objects[KEY]["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize(
    "times",
    [
        pytest.param({"duration_s": 10}, id="a lease no longer than the renew deadline"),
        pytest.param(
            {"renew_deadline_s": 2.4}, id="a renew deadline within the jitter of one retry"
        ),
        pytest.param({"retry_period_s": 0}, id="no pause between tries"),
    ],
)
def test_times_that_do_not_go_together_are_refused(times: dict[str, Any]):
    with pytest.raises(ValueError, match="must be greater"):
        LeaseConfig(namespace="ns", **times)


def test_identities_differ_between_processes_on_one_host():
    rng = random.Random(1)
    assert new_identity("host", rng) != new_identity("host", rng)


async def test_a_lease_that_somebody_has_put_our_name_on_is_taken_when_it_has_run_out(
    api: StoreApi,
):
    one, two = await start_two(api)
    await put_name(api, "two")
    await asyncio.sleep(10)
    assert [leads(one), leads(two)] == [False, False]
    await asyncio.sleep(12)
    assert leads(one) or leads(two)


async def test_a_lease_that_is_deleted_is_made_anew_by_who_leads(api: StoreApi):
    one, two = await start_two(api)
    for _ in range(5):
        del api.objects[KEY]
        await asyncio.sleep(3)
        assert [leads(one), leads(two)] == [True, False]
        assert spec(api)["holderIdentity"] == "one"


async def test_a_lease_deleted_while_its_holder_is_dead_is_taken_when_it_would_have_run_out(
    api: StoreApi,
):
    one, two = await start_two(api)
    await asyncio.sleep(3)
    one.kill()
    del api.objects[KEY]
    await asyncio.sleep(10)
    assert not leads(two)
    await asyncio.sleep(10)
    assert leads(two)
    assert not two.elector.seen.never_held_by_others


async def test_who_was_paused_and_finds_no_lease_waits_for_whoever_has_taken_it_meanwhile(
    api: StoreApi,
):
    """Seed 281000556: what it had seen last had run out, and another one led by what was deleted a
    moment ago.
    """
    way = another_way(api, delay_s=0.01)
    one = Replica(way, "one")
    await asyncio.sleep(0.5)
    two = Replica(api, "two", 2)
    way.down = True
    await asyncio.sleep(20)
    assert [leads(one), leads(two)] == [False, True]
    del api.objects[KEY]
    way.down = False
    for _ in range(40):
        await asyncio.sleep(0.1)
        assert [leads(one), leads(two)] == [False, True]
    assert spec(api)["holderIdentity"] == "two"


async def test_who_could_not_look_waits_for_whoever_made_a_lease_that_is_deleted_again(
    api: StoreApi,
):
    """Seed 60000119: it had found none before, for long enough, and another led by it."""
    api.objects.clear()
    way = another_way(api, delay_s=0.01)
    two = Replica(way, "two", 2)
    await asyncio.sleep(3)
    one = Replica(api, "one")
    await asyncio.sleep(9)
    way.down = True
    await asyncio.sleep(8)
    assert [leads(one), leads(two)] == [True, False]
    del api.objects[KEY]
    way.down = False
    for _ in range(40):
        await asyncio.sleep(0.1)
        assert [leads(one), leads(two)] == [True, False]
    assert spec(api)["holderIdentity"] == "one"


async def test_who_starts_just_after_a_lease_was_deleted_waits_until_its_holder_has_made_it_anew(
    api: StoreApi,
):
    one, two = await start_two(api)
    await two.stop()
    for seed in range(5):
        del api.objects[KEY]
        late = Replica(api, f"late-{seed}", seed)
        await asyncio.sleep(3)
        assert [leads(one), leads(late)] == [True, False]
        assert spec(api)["holderIdentity"] == "one"
        await late.stop()


async def test_who_finds_no_lease_leads_when_any_would_have_run_out(api: StoreApi):
    api.objects.clear()
    one = Replica(api, "one")
    await asyncio.sleep(14)
    assert not leads(one)
    await asyncio.sleep(5)
    assert leads(one)
    assert not one.elector.seen.never_held_by_others


async def test_a_lease_that_nobody_has_held_is_taken_at_once_and_its_first_holder_has_founded_it(
    api: StoreApi,
):
    one = Replica(api, "one")
    await asyncio.sleep(0.1)
    assert leads(one)
    assert one.elector.seen.never_held_by_others
    assert spec(api)["leaseTransitions"] == 0


@pytest.mark.parametrize(("version", "at_once"), [("4", True), ("5", True), ("6", False)])
async def test_an_installed_lease_that_is_younger_than_we_is_waited_for(
    version: str, at_once: bool
):
    """Seed 181000534: it was applied again just after its first holder had taken it, and another
    one took it at once.
    """
    lease = installed()[KEY]
    lease["metadata"]["resourceVersion"] = version
    elector = LeaderElector(
        StoreApi({KEY: lease}, delay_s=0.01, version=6),
        LEASE,
        identity="one",
        now=wall,
        rng=random.Random(1),
        candidacy=Candidacy(first_version=lambda: "5"),
    )
    task = asyncio.create_task(elector.run(asyncio.Event().wait))  # type: ignore[arg-type]
    await asyncio.sleep(14)
    assert elector.is_leader is at_once
    await asyncio.sleep(5)
    assert elector.is_leader
    task.cancel()
    await asyncio.wait({task})


async def test_an_installed_lease_is_waited_for_where_a_leader_has_written_something(api: StoreApi):
    one = Replica(api, "one", nothing_written=False)
    await asyncio.sleep(14)
    assert not leads(one)
    await asyncio.sleep(5)
    assert leads(one)


@pytest.mark.parametrize("what", ["emptied", "deleted and applied again"])
@pytest.mark.parametrize("who", ["candidate", "newcomer"])
async def test_a_lease_whose_holder_is_taken_out_of_it_stays_with_its_holder(
    api: StoreApi, what: str, who: str
):
    one, two = await start_two(api)
    await two.stop()
    other = two if who == "newcomer" else Replica(api, "three", 3)
    await asyncio.sleep(3)
    for _ in range(5):
        if what == "emptied":
            await put_name(api, "")
        else:
            api.objects[KEY] = {**installed()[KEY], "metadata": {**api.objects[KEY]["metadata"]}}
        if who == "newcomer":
            other = Replica(api, "late", 4, nothing_written=False)
        for _ in range(40):
            await asyncio.sleep(0.1)
            assert [one.elector.still_leading(), leads(other)] == [True, False]
        if who == "newcomer":
            await other.stop()
    assert spec(api)["holderIdentity"] == "one"


async def test_a_lease_emptied_while_its_holder_is_dead_is_taken_when_it_would_have_run_out(
    api: StoreApi,
):
    one, two = await start_two(api)
    await asyncio.sleep(3)
    one.kill()
    await put_name(api, "")
    await asyncio.sleep(10)
    assert not leads(two)
    await asyncio.sleep(10)
    assert leads(two)
    assert not two.elector.seen.never_held_by_others


async def test_a_lease_that_comes_back_before_it_ran_out_is_led_on(api: StoreApi):
    one, two = await start_two(api)
    await put_name(api, "two")
    await asyncio.sleep(3)
    await put_name(api, "one")
    await asyncio.sleep(5)
    assert [leads(one), leads(two)] == [True, False]


async def test_who_made_the_lease_has_founded_it_and_who_took_it_over_has_not(api: StoreApi):
    one, two = await start_two(api)
    assert [one.elector.seen.never_held_by_others, two.elector.seen.never_held_by_others] == [
        True,
        False,
    ]
    one.kill()
    await asyncio.sleep(20)
    assert leads(two)
    assert not two.elector.seen.never_held_by_others


async def test_a_lease_as_it_was_before_ends_the_candidate_for_nothing_else_that_it_knows_is_true(
    api: StoreApi,
):
    one = Replica(api, "one")
    await asyncio.sleep(5)
    older = api.objects[KEY]
    await asyncio.sleep(5)
    api.objects[KEY] = older
    await asyncio.wait({one.task}, timeout=5)
    assert one.task.done()
    assert isinstance(one.task.exception(), HistoryReplaced)
