"""A caller of ``POST /v1/schedule`` in a simulated world: it publishes what it is answered, and
says so when it asks again.
"""

import asyncio
from typing import Any

import orjson

from extender.kube.api import PODS
from extender.lab.simulation.world.facts import PLACEMENTS
from extender.lab.simulation.world.replica import Replica
from extender.lab.simulation.world.scale import NAME, NS, TENANTS
from extender.lab.simulation.world.world import World
from extender.model.ledger import decode_ledger
from extender.service.http.schedule import ScheduleRefused

ANSWER_S = 4.0
PAUSE_S = 1.0


class Caller:
    """``published``: pod name -> vreplicas, in its own status."""

    def __init__(self, world: World, name: str, pool: str = NAME) -> None:
        self._world, self._name, self._pool = world, name, pool
        self.published: dict[str, int] = {}
        self.key = f"{TENANTS[0]}/{name}@broker.x.dev"

    async def ask(self, vreplicas: int, *, tries: int = 60) -> int:
        """Ask the leader, whoever that is, until all is placed; how many are left."""
        left = vreplicas
        for _ in range(tries):
            reply = await self._answer(vreplicas)
            if reply is not None:
                self.published = {
                    item["podName"]: item["vreplicas"] for item in reply["placements"]
                }
                left = reply["left"]
                if not left:
                    break
            await asyncio.sleep(PAUSE_S)
        return left

    async def _answer(self, vreplicas: int) -> dict[str, Any] | None:
        leader = self._leader()
        if leader is None:
            return None
        task = leader._spawn(leader.service.schedule_verb().schedule(self._request(vreplicas)))
        await asyncio.wait({task}, timeout=ANSWER_S)
        task.cancel()
        await asyncio.wait({task})
        if leader.api.crashed or task.cancelled():
            return None
        if (error := task.exception()) is not None:
            if not isinstance(error, ScheduleRefused):
                raise error
            return None
        reply: dict[str, Any] = orjson.loads(task.result()[0])
        return reply

    def _leader(self) -> Replica | None:
        pool = f"{NS}/{self._pool}"
        candidates = self._world.leadership.candidates()
        return next((r for r in candidates if r.service.leadership.leads(pool)), None)

    def _request(self, vreplicas: int) -> bytes:
        placements = [
            {"podName": name, "vreplicas": count} for name, count in self.published.items()
        ]
        vpod = {"namespace": TENANTS[0], "name": self._name, "kind": "Broker", "group": "x.dev"}
        return orjson.dumps(
            {
                "vpod": {**vpod, "vreplicas": vreplicas, "placements": placements},
                "pool": {"namespace": NS, "name": self._pool},
            }
        )

    def uncovered(self) -> list[str]:
        """Where a bound pod's ledger has less than it publishes (I2)."""
        found = []
        for (_, name), pod in self._world.stored(PODS).items():
            if name not in self.published or not pod["spec"].get("nodeName"):
                continue
            ledger = decode_ledger((pod["metadata"].get("annotations") or {}).get(PLACEMENTS))
            has = ledger[self.key].vreplicas if self.key in ledger else 0
            if has < self.published[name]:
                found.append(
                    f"{self.published[name]} are published on {name}, whose ledger has {has}"
                )
        return found
