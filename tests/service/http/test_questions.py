"""``/v1/explain`` and ``/v1/plan`` over real sockets: what they answer, what they refuse, and that
nobody waits for them.
"""

import asyncio
import io
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest

from extender.model import reading
from extender.model.names import UNSCHEDULABLE_ANNOTATION
from extender.service.http import questions as service_questions
from extender.service.http.questions import Questions, Refused
from extender.service.placing.decision_history import DecisionHistory
from extender.whatif import explanation
from tests.support.adapters import adapters, served
from tests.support.builders import NS, POOL
from tests.support.service import World, a_world, filter_args, until


class Asking:
    """A running service, and a client that asks."""

    def __init__(self, service, session: aiohttp.ClientSession) -> None:
        self.service = service
        self.url = service.server.url
        self.session = session

    async def explain(self, **what: str):
        async with self.session.get(f"{self.url}/v1/explain", params=what) as reply:
            return reply.status, orjson.loads(await reply.read())

    async def plan(self, document: object, **more):
        async with self.session.post(f"{self.url}/v1/plan", json=document, **more) as reply:
            return reply.status, orjson.loads(await reply.read())

    async def settled(self, name: str, left: int) -> Any:
        async def is_so() -> bool:
            status, answer = await self.explain(vpod=f"tenant/{name}")
            return status == 200 and answer["left"] == left and bool(answer["history"])

        await until(is_so, timeout_s=5)
        return (await self.explain(vpod=f"tenant/{name}"))[1]


@asynccontextmanager
async def asking(world: World, **options) -> AsyncIterator[Asking]:
    async with world.serving(serve=True, **options) as service, aiohttp.ClientSession() as session:
        yield Asking(service, session)


async def test_a_placed_vpod_is_explained_with_who_placed_it_and_why():
    world = await a_world(0, 1, 2)
    await world.vpod("a", 6)
    async with asking(world) as it:
        answer = await it.settled("a", 0)
        assert answer["outcome"] == "all 6 vreplicas are placed"
        assert answer["placed"] == {"dispatcher-0": 2, "dispatcher-1": 2, "dispatcher-2": 2}
        assert answer["decided"]["by"] == it.service.identity == answer["answeredBy"]
        assert (answer["decided"]["why"], answer["decided"]["at"][:2]) == (
            "it had no place yet",
            "20",
        )
        assert answer["zoneLoss"] == {"z0": 2, "z1": 2, "z2": 2}
        assert (answer["fixes"], answer["pool"]) == ([], POOL)


async def test_a_change_of_the_spec_is_a_second_decision_with_its_reason():
    world = await a_world(0, 1, 2)
    await world.vpod("a", 3)
    async with asking(world) as it:
        await it.settled("a", 0)
        await world.set_vreplicas("a", 5)

        async def is_told() -> bool:
            _, answer = await it.explain(vpod="tenant/a")
            return [one["why"] for one in answer["history"]] == [
                "its spec changed (generation 2)",
                "it had no place yet",
            ]

        await until(is_told, timeout_s=5)


async def test_what_waits_says_what_would_place_it():
    world = await World.create(replicas=1, slots=4, maxPods=1)
    await world.pod(0, {}, node="node-0", slots=4)
    await world.vpod("a", 6)
    async with asking(world) as it:
        answer = await it.settled("a", 2)
        changes = {fix["change"]: (fix["places"], fix["left"]) for fix in answer["fixes"]}
        assert changes == {
            "maxPods 1 to 2": (2, 0),
            "slotsPerPod 4 to 6": (2, 0),
            "ask for 2 less": (0, 0),
        }
        assert answer["size"]["unlimited"] == 2


async def test_a_pod_is_explained():
    world = await a_world(0)
    await world.vpod("a", 6)
    async with asking(world) as it:
        await it.settled("a", 0)
        status, answer = await it.explain(pod=f"{NS}/dispatcher-0")
        assert (status, answer["kind"], answer["node"]) == (200, "Pod", "node-0")
        assert [(row["vpod"], row["vreplicas"]) for row in answer["carries"]] == [("tenant/a", 6)]
        assert answer["loss"]["zone"] == [{"vpod": "tenant/a", "lost": 6, "of": 6, "percent": 100}]


@pytest.mark.parametrize(
    ("what", "status", "said"),
    [
        pytest.param({}, 400, "ask for one of", id="nothing"),
        pytest.param({"vpod": "t/a", "pod": "t/b"}, 400, "ask for one of", id="both"),
        pytest.param({"vpod": "no-slash"}, 400, "is not NAMESPACE/NAME", id="no key"),
        pytest.param({"vpod": "t/<script>"}, 400, "is not NAMESPACE/NAME", id="no name"),
        pytest.param(
            {"vpod": "other/a"}, 404, "does not exist; known are tenant/a", id="another namespace"
        ),
        pytest.param({"pod": f"{NS}/dispatcher-7"}, 404, "does not exist", id="no such pod"),
    ],
)
async def test_a_wrong_question_is_told_what_is_wrong(what, status, said):
    world = await a_world(0)
    await world.vpod("a", 1)
    async with asking(world) as it:
        await it.settled("a", 0)
        got, answer = await it.explain(**what)
        assert got == status
        assert said in answer["error"]


async def test_a_plan_tells_what_a_drain_moves():
    world = await a_world(0, 1, 2)
    await world.vpod("a", 6)
    async with asking(world) as it:
        await it.settled("a", 0)
        status, answer = await it.plan({"pool": POOL, "drain": ["node/node-0"]})
        assert (status, answer["summary"]["moved"], answer["summary"]["unplacedAfter"]) == (
            200,
            2,
            0,
        )
        (row,) = answer["vpods"]
        assert (row["name"], row["after"]) == ("tenant/a", {"dispatcher-1": 3, "dispatcher-2": 3})
        assert await world.published("a") == {0: 2, 1: 2, 2: 2}, "nothing was done"


@pytest.mark.parametrize(
    ("document", "status", "said"),
    [
        pytest.param({"pol": POOL}, 400, "pol: is not known", id="a field"),
        pytest.param({"pool": "t/other"}, 404, "AdapterPool t/other does not exist", id="a pool"),
        pytest.param(
            {"drain": ["rack/1"]}, 400, "must be pod/NAME, node/NAME or zone/NAME", id="a drain"
        ),
        pytest.param(
            {"drain": ["node/n9"]}, 400, "node n9 is not known (known: node-0", id="a node"
        ),
        pytest.param({"set": {"slotsPerPod": 0}}, 400, "set.slotsPerPod", id="a number"),
        pytest.param({"set": {"replicas": 3}}, 400, "set.replicas: is not known", id="a setting"),
        pytest.param(
            {"profile": "best"}, 400, "'best' is not known (known: default", id="a profile"
        ),
        pytest.param(
            {"addVPods": [{"name": "x", "vreplicas": 1}]}, 400, "addVPods[0].namespace", id="a vpod"
        ),
        pytest.param({"addTenants": [{"name": "x"}]}, 400, "addTenants[0].slots", id="a tenant"),
        pytest.param(
            {"addTenants": [{"name": "x", "slots": 3}]},
            400,
            "addTenants[0]: AdapterPool knative-eventing/dispatcher has no spec.tenancy",
            id="a tenant of a pool without tenancy",
        ),
        pytest.param([], 400, "must be an object", id="a list"),
    ],
)
async def test_a_wrong_plan_names_the_field(document, status, said):
    world = await a_world(0)
    async with asking(world) as it:
        got, answer = await it.plan(document)
        assert (got, said in answer["error"]) == (status, True), answer


async def test_a_plan_tells_what_a_new_tenant_would_get_of_what_others_have():
    world = await World.create(maxPods=3, tenancy={})
    await world.pods(0, 1, 2)
    await world.vpod("a", 60)
    async with asking(world) as it:
        await it.settled("a", 0)
        status, answer = await it.plan({"addTenants": [{"name": "new", "slots": 100}]})
        assert status == 200, answer
        [pool] = answer["pools"]
        used = {row["tenant"]: (row["usedSettled"], row["usedAfter"]) for row in pool["tenants"]}
        assert used == {"new": (0, 30), "tenant": (60, 30)}
        assert await world.published("a") == {0: 20, 1: 20, 2: 20}, "nothing was done"


async def test_a_plan_must_be_json_and_not_too_large():
    world = await World.create()
    async with asking(world) as it:
        async with it.session.post(
            f"{it.url}/v1/plan", data=b"{}", headers={"Content-Type": "text/plain"}
        ) as reply:
            assert reply.status == 415
        async with it.session.post(
            f"{it.url}/v1/plan",
            data=io.BytesIO(b" " * (2**20 + 1)),
            headers={"Content-Type": "application/json"},
        ) as reply:
            assert reply.status == 413
        async with it.session.post(
            f"{it.url}/v1/plan", data=b"{", headers={"Content-Type": "application/json"}
        ) as reply:
            assert reply.status == 400


async def test_what_a_hand_over_waits_for_is_said():
    world = await a_world(0, 1, replicas=2, minPods=2, handoff={"mode": "Overlap"})
    await world.vpod("a", 4)
    async with asking(world) as it, adapters(world, 0, 1) as known:
        await until(served(known, "tenant/a", {0: 2, 1: 2}))
        known.never = {(1, "Serve")}
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})
        wanted = re.compile(r"waits for the adapter of dispatcher-1 to get ready \(\d s of 30\)")

        async def is_said() -> bool:
            _, answer = await it.explain(vpod="tenant/a")
            return any(wanted.fullmatch(step) for step in answer["steps"])

        await until(is_said, timeout_s=5)


async def test_a_move_that_was_taken_back_is_not_told_as_if_it_came_next():
    world = await a_world(
        *(0, 1, 2), replicas=3, minPods=3, handoff={"mode": "Overlap", "prepareTimeoutSeconds": 1}
    )
    await world.vpod("a", 3)
    async with asking(world) as it, adapters(world, 0, 1, 2) as known:
        await until(served(known, "tenant/a", {0: 1, 1: 1, 2: 1}))
        known.never = {(1, "Serve"), (2, "Serve")}
        await world.annotate(0, **{UNSCHEDULABLE_ANNOTATION: "true"})

        async def is_taken_back() -> bool:
            _, answer = await it.explain(vpod="tenant/a")
            return any("was taken back" in step for step in answer["steps"])

        await until(is_taken_back, timeout_s=5)
        assert (await world.ledger(0), await world.published("a")) == (
            {"tenant/a": 1},
            {0: 1, 1: 1, 2: 1},
        )
        _, answer = await it.explain(vpod="tenant/a")
        assert answer["placed"] == answer["target"] == answer["published"]
        assert answer["steps"][:3] == [
            "kept: 1 on dispatcher-1",
            "kept: 1 on dispatcher-2",
            "kept until a move is tried again: 1 on dispatcher-0 (no adapter was ready elsewhere)",
        ]


async def test_where_nobody_leads_that_is_said():
    world = await a_world(0)
    await world.vpod("a", 1)
    await world.sync()
    asked = Questions(
        world.caches,
        history=DecisionHistory("me", lambda: 0.0),
        refusal=lambda: "",
        who=lambda _pool: {"leader": ""},
    )
    answer = orjson.loads(await asked.explain("tenant/a", ""))
    assert answer["outcome"] == (
        "1 vreplica has a place; not published yet: 1; "
        "no replica leads the pool now: nothing is decided or written until one does"
    )


class Held:
    """Questions whose thread waits until it is let go."""

    def __init__(self, monkeypatch, **options) -> None:
        self.go_on = threading.Event()
        self.running = 0
        self.most = 0
        monkeypatch.setattr(service_questions, "explain_vpod", self._explain)
        self._more = options

    def _explain(self, state, key, *, expired, **more):
        self.running += 1
        self.most = max(self.most, self.running)
        while not self.go_on.wait(0.005) and not expired():
            pass
        self.running -= 1
        return explanation.explain_vpod(state, key, expired=expired, **more)

    async def questions(self) -> Questions:
        world = await a_world(0)
        await world.vpod("a", 1)
        await world.sync()
        return Questions(
            world.caches,
            history=DecisionHistory("me", lambda: 0.0),
            refusal=lambda: "",
            who=lambda _pool: {"leader": "somebody"},
            **self._more,
        )

    async def all_places_of(self, questions: Questions) -> list["asyncio.Task[bytes]"]:
        """As many questions as may wait, one of which is being answered."""
        asked = [
            asyncio.create_task(questions.explain("tenant/a", ""))
            for _ in range(service_questions.WAITING_MAX)
        ]
        await until(lambda: self.running == 1)
        return asked


async def test_one_question_runs_at_a_time_and_too_many_are_turned_away(monkeypatch):
    held = Held(monkeypatch)
    questions = await held.questions()
    asked = await held.all_places_of(questions)
    with pytest.raises(Refused, match="questions wait already") as refused:
        await questions.explain("tenant/a", "")
    assert refused.value.status == 503
    held.go_on.set()
    answers = await asyncio.gather(*asked)
    assert held.most == 1
    assert {orjson.loads(answer)["name"] for answer in answers} == {"tenant/a"}


LARGE = b" " * (service_questions.AT_ONCE_BYTES + 1)


async def test_large_bodies_are_decoded_beside_the_loop_one_after_the_other(monkeypatch):
    """Hundreds of megabytes that are no JSON would keep verbs waiting."""
    questions = await Held(monkeypatch).questions()
    decode, began, go_on = reading.decode_json, list[int](), threading.Event()

    def noted(body: bytes) -> object:
        began.append(threading.get_ident())
        go_on.wait(5.0)
        return decode(body)

    monkeypatch.setattr(service_questions, "decode_json", noted)
    asked = [asyncio.create_task(questions.plan(LARGE)) for _ in range(3)]
    await until(lambda: len(began) == 1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(began) == 1
    go_on.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(each) for each in answers} == {Refused}
    assert threading.get_ident() not in began


async def test_between_large_bodies_that_are_refused_there_is_a_rest(monkeypatch):
    questions = await Held(monkeypatch).questions()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(questions.plan(LARGE) for _ in range(3)), return_exceptions=True)
    assert loop.time() - began >= 3 * service_questions.REST_S


async def test_small_bodies_that_are_wrong_take_nobodys_place(monkeypatch):
    held = Held(monkeypatch)
    questions = await held.questions()
    asked = await held.all_places_of(questions)
    with pytest.raises(Refused, match="is not JSON"):
        await questions.plan(b"{")
    held.go_on.set()
    await asyncio.gather(*asked)


async def test_who_is_too_slow_with_a_plan_is_told_and_sends_nothing_more(monkeypatch):
    monkeypatch.setattr(
        service_questions.Questions.__init__, "__kwdefaults__", {"deadline_s": 0.05}
    )
    world = await World.create()
    async with asking(world) as it:
        _, _, port = it.url.rpartition(":")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(
            b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000\r\n\r\n{"
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ")
        assert b"did not arrive within" in await asyncio.wait_for(reader.read(), timeout=1.5)
        writer.close()


async def test_a_question_that_takes_too_long_ends_and_the_next_one_has_its_turn(monkeypatch):
    held = Held(monkeypatch, deadline_s=0.05)
    questions = await held.questions()
    monkeypatch.setattr(service_questions, "FIXES_SHARE", 100.0)
    with pytest.raises(Refused) as refused:
        await questions.explain("tenant/a", "")
    assert refused.value.status == 504
    held.go_on.set()
    questions._deadline_s = 5.0
    assert orjson.loads(await questions.explain("tenant/a", ""))["name"] == "tenant/a"
    assert held.most == 1


async def test_verbs_are_answered_while_a_question_is_thought_about(monkeypatch):
    world = await World.create()
    await world.pod(0)
    await world.pods(1)
    await world.vpod("a", 1)
    pod = await world.pod_object(0)
    held = Held(monkeypatch)
    async with asking(world) as it:
        await until(lambda: "tenant/a" in it.service.caches.state.pool(POOL).vpods, timeout_s=5)
        question = asyncio.create_task(it.explain(vpod="tenant/a"))
        await until(lambda: held.running == 1, timeout_s=5)
        headers = {"Content-Type": "application/json"}
        async with it.session.post(
            f"{it.url}/v1/filter", data=filter_args(pod, ["node-0"]), headers=headers
        ) as reply:
            assert (reply.status, held.running) == (200, 1)
        held.go_on.set()
        assert (await question)[0] == 200
