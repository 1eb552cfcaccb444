"""Callers of ``POST /v1/schedule``: controllers that keep the placements of their objects
themselves (docs/python-api.md).

Each caller has one vpod, which is no object of the API. It asks the leader, publishes the answer,
and sends what it publishes with every request. It asks again when the answer says so, and at each
resync. It has one request at a time. ``Callers`` are the callers of a world.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import orjson

from extender.lab.faults import Answer, Faults
from extender.lab.scheduler.extender_transport import TIMED_OUT, TransportError
from extender.lab.simulation.world.facts import VPod
from extender.lab.simulation.world.objects import amounts_of
from extender.lab.simulation.world.replica import Replica

KIND: Final = "Broker"
GROUP: Final = "x.dev"
CALLERS: Final = f"@{KIND.lower()}.{GROUP}"
"""The end of the keys of callers' vpods."""
TIMEOUT_S: Final = 6.0
"""Timeout of one request, as in ``extender.scheduling_api``."""
RETRY_S: Final = 1.0
"""The pause after no replica could decide."""
ASKED_IN_A_ROW: Final = 3
"""The number of replicas that it asks before it waits."""
CALM_RESYNC_S: Final = 5.0


class CallerWatcher(Protocol):
    """Observes what callers publish. The vpod of a caller is None before it comes, and once it
    publishes nothing any more.
    """

    def wished(self, old: VPod | None, new: VPod | None) -> None:
        """A caller comes, wants something else, or begins to give everything back."""
        ...

    def answered(self, asked: VPod, new: VPod, by: str) -> None:
        """A caller publishes an answer of the replica ``by``. ``asked`` is the vpod that the
        request was about.
        """
        ...


@dataclass(frozen=True)
class Network:
    """The connection from callers to replicas. ``replicas`` returns all replicas except rivals."""

    replicas: Callable[[], list[Replica]]
    faults: Faults
    trace: Callable[[str], None]
    problems: list[str]
    watchers: list[CallerWatcher] = field(default_factory=list)


class Caller:
    """One caller. ``vpod`` is what it wants and publishes; None once it gives everything back."""

    def __init__(self, network: Network, vpod: VPod, rng: random.Random) -> None:
        self._network = network
        self._rng = rng
        self._namespace, _, named = vpod.key.partition("/")
        self._name = named.partition("@")[0]
        self._pool = vpod.pool
        self.key = vpod.key
        self.vpod: VPod | None = vpod
        self.gone = False
        """Whether a replica has confirmed that all of it is taken back."""
        self.gone_at = 0.0
        self.resync_s = rng.choice((3.0, 20.0, 120.0))
        self._kicked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last = ""
        """The identity of the replica to ask first."""
        self._tell(None, vpod)
        self._start(0.0)

    # -- acts on the caller --

    def wish(self, *, vreplicas: int | None = None, weight: int | None = None) -> None:
        """Change what the caller wants."""
        old = self.vpod
        if old is None:
            return
        wanted = old.wanted if vreplicas is None else vreplicas
        heavy = old.weight if weight is None else weight
        self.vpod = replace(old, generation=old.generation + 1, wanted=wanted, weight=heavy)
        self._tell(old, self.vpod)
        self.ask_soon()

    def ask_soon(self) -> None:
        """Ask now, unless a request is under way or the caller is down."""
        self._kicked.set()

    def give_back(self) -> None:
        """Delete the caller's object: it publishes nothing any more."""
        old, self.vpod = self.vpod, None
        self._tell(old, None)
        self.ask_soon()

    def crash(self, away_s: float) -> None:
        """Crash and lose any answer that is under way. After ``away_s`` come back with what was
        last published.
        """
        self._network.trace(f"{self.key} crashed for {away_s:.3f} s")
        self.stop()
        self._start(away_s)

    def calm_down(self) -> None:
        """Ask often from now on."""
        self.resync_s = CALM_RESYNC_S
        self.ask_soon()

    def release_again(self) -> None:
        """Give back once more what was given back."""
        self.gone = False
        self._start(0.0)

    def stop(self) -> None:
        """Stop asking."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _tell(self, old: VPod | None, new: VPod | None) -> None:
        wants = (
            f"wants {new.wanted} of {new.weight} in {new.pool}"
            if new is not None
            else "gives all back"
        )
        self._network.trace(f"    {self.key} {wants}")
        for watcher in self._network.watchers:
            watcher.wished(old, new)

    def _start(self, delay_s: float) -> None:
        self._task = asyncio.create_task(self._run(delay_s), name=f"caller {self.key}")
        self._task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._network.problems.append(f"{self.key} ended with {error!r}")

    # -- the caller's own work --

    async def _run(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while not self.gone:
            await self._pause(await self._reconcile())

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._kicked.wait()
        except TimeoutError:
            return
        finally:
            self._kicked.clear()

    async def _reconcile(self) -> float:
        """Ask, and publish the answer. Return the seconds until the next request."""
        asked = self.vpod
        answered = await self._ask(self._request(asked))
        if answered is None:
            return RETRY_S
        reply, by = answered
        self._network.trace(f"    {self.key} is answered {reply.decode()} by {by}")
        if asked is None:
            self.gone, self.gone_at = True, asyncio.get_running_loop().time()
            return 0.0
        answer = orjson.loads(reply)
        before = self.vpod
        if before is None:
            # The object was deleted while the request was under way. Nothing is published any more.
            return 0.0
        placements = {item["podName"]: item["vreplicas"] for item in answer["placements"]}
        self.vpod = replace(
            before,
            observed=asked.generation,
            placements=placements,
            scheduled=sum(placements.values()),
            condition=("False" if answer["left"] else "True", str(answer.get("reason", ""))),
        )
        for watcher in self._network.watchers:
            watcher.answered(asked, self.vpod, by)
        if answer["left"]:
            return float(answer["retryAfterSeconds"])
        # The status has changed, and most controllers get an event of that.
        told = placements != asked.placements and self._rng.random() < 0.5
        return RETRY_S * self._rng.random() if told else self.resync_s

    def _request(self, vpod: VPod | None) -> bytes:
        wanted: dict[str, object] = {"deleted": True}
        if vpod is not None:
            placements = [
                {"podName": name, "vreplicas": count} for name, count in vpod.placements.items()
            ]
            wanted = {
                "vreplicas": vpod.wanted,
                "slotsPerVReplica": vpod.weight,
                "placements": placements,
            }
            if vpod.amounts:
                wanted["perVReplica"] = dict(vpod.amounts)
        named = {"namespace": self._namespace, "name": self._name, "kind": KIND, "group": GROUP}
        pool = {"namespace": "adapters", "name": self._pool}
        return orjson.dumps({"vpod": {**named, **wanted}, "pool": pool})

    async def _ask(self, body: bytes) -> tuple[bytes, str] | None:
        """Return the answer and its sender; None if nobody answered. A replica that does not lead
        names the leader, which is asked next.
        """
        for _ in range(ASKED_IN_A_ROW):
            replica = self._whom()
            if replica is None:
                return None
            try:
                status, reply = await self._sent(replica, body)
            except TransportError as error:
                self._network.trace(f"schedule of {self.key} at {replica.name}: {error}")
                self._last = ""
                return None
            self._network.trace(f"schedule of {self.key} at {replica.name}: {status}")
            if status == 200:
                self._last = replica.service.identity
                return reply, replica.name
            if status not in (404, 503):
                self._network.problems.append(
                    f"{self.key} asked {body!r} and was answered {status} {reply!r}"
                )
            if status != 503:
                return None
            self._last, told, _ = reply.decode().rpartition(": ")[2].partition(" leads, ask it")
            if not told:
                self._last = ""
                return None
        return None

    def _whom(self) -> Replica | None:
        replicas = self._network.replicas()
        if not replicas:
            return None
        known = next((one for one in replicas if one.service.identity == self._last), None)
        if known is None or self._network.faults.hits("schedule_elsewhere"):
            return self._rng.choice(replicas)
        return known

    async def _sent(self, replica: Replica, body: bytes) -> Answer:
        """Send a request. Raises TransportError."""
        faults = self._network.faults
        await faults.delay()
        answer = await replica.schedule(body, TIMEOUT_S)
        if answer[0] == 200 and faults.hits("schedule_repeated"):
            answer = await replica.schedule(body, TIMEOUT_S)
        await faults.delay()
        if answer[0] == 200 and faults.hits("schedule_answer_lost"):
            raise TransportError(TIMED_OUT)
        return answer


class Callers:
    """The callers of a world, by key. ``dimensions``: whether they take some of them."""

    def __init__(self, network: Network, *, dimensions: bool) -> None:
        self._network = network
        self._dimensions = dimensions
        self.watchers = network.watchers
        self._known: dict[str, Caller] = {}

    def come(
        self, namespace: str, name: str, vreplicas: int, weight: int, pool: str, rng: random.Random
    ) -> bool:
        """Add a caller. Return False if one of that name has not yet given everything back."""
        key = external_vpod_key(namespace, name)
        if (known := self._known.get(key)) is not None and not known.gone:
            return False
        vpod = VPod(
            key=key,
            uid="",
            pool=pool,
            generation=1,
            wanted=vreplicas,
            weight=weight,
            observed=0,
            placements={},
            scheduled=0,
            condition=("", ""),
            moved=("", "", ""),
            by_caller=True,
            amounts=amounts_of(f"{namespace}/{name}") if self._dimensions else {},
        )
        self._known[key] = Caller(self._network, vpod, rng)
        return True

    def there(self) -> list[Caller]:
        """Return the callers that want something."""
        return [caller for caller in self._known.values() if caller.vpod is not None]

    def leaving(self) -> Iterator[str]:
        """Iterate over the callers that wait for the confirmation that all is taken back."""
        return (
            caller.key for caller in self._known.values() if caller.vpod is None and not caller.gone
        )

    def release_again(self, since: float) -> None:
        """Let callers that went before a new leader began (``since``) give back again, because that
        leader may not know of it. In reality a person has to do this (docs/reliability.md).
        """
        for caller in self._known.values():
            if caller.gone and caller.gone_at <= since:
                caller.release_again()

    def calm_down(self) -> None:
        """Let all callers ask often."""
        for caller in self._known.values():
            caller.calm_down()

    def stop(self) -> None:
        """Stop all callers."""
        for caller in self._known.values():
            caller.stop()


def external_vpod_key(namespace: str, name: str) -> str:
    """Return the key under which ledgers have a caller's vpod."""
    return f"{namespace}/{name}@{KIND}.{GROUP}".lower()
