"""``Adapters``: stand-ins for the adapters of a pool with spec.handoff, without HTTP. Each reads
its pod's assignment, does what it asks after ``delay_s``, and acknowledges it.

``serving`` has what each serves at this moment, and ``gaps`` each moment in which an adapter let go
of a share that nobody else served. ``most`` has how many vreplicas of each vpod were served at
once. In a pool with indexes, ``indexes`` has which are served, ``unserved`` each index that was let
go while nobody else served it, and ``twice`` each that two adapters served at once.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from extender.kube.api import PODS, Conflict, Invalid, PatchType
from extender.model.names import ACKNOWLEDGED_ANNOTATION, ASSIGNMENT_ANNOTATION
from tests.support.builders import NS
from tests.support.service import World

LOOK_S = 0.05


@dataclass
class Adapters:
    """Those of some ordinals. ``delay_s``: how long each takes to do what it is told."""

    world: World
    delay_s: dict[int, float] = field(default_factory=dict)
    never: set[tuple[int, str]] = field(default_factory=set)
    """(ordinal, state) of what an adapter is told and never does."""
    serving: dict[int, dict[str, int]] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)
    most: dict[str, int] = field(default_factory=dict)
    indexes: dict[tuple[int, str], set[int]] = field(default_factory=dict)
    """By ordinal and vpod."""
    unserved: set[tuple[str, int]] = field(default_factory=set)
    twice: set[tuple[str, int]] = field(default_factory=set)
    """Vpod and index."""
    told: list[tuple[int, str, str]] = field(default_factory=list)
    """(ordinal, vpod, state), as often as it has changed."""

    async def run(self, ordinal: int) -> None:
        """Be the adapter of a pod until cancelled."""
        await self.world.ready(ordinal)
        mine = self.serving.setdefault(ordinal, {})
        known, said = None, None
        assignment: dict[str, Any] = {}
        while True:
            await asyncio.sleep(LOOK_S)
            text = await self.world.annotation(ordinal, ASSIGNMENT_ANNOTATION)
            if text is None:
                continue
            if text != known:
                known, assignment = text, json.loads(text)
                self._note(ordinal, assignment)
                await self._acknowledge(ordinal, text, assignment, busy=list(assignment["shares"]))
                await asyncio.sleep(self.delay_s.get(ordinal, 0.1))
            busy = [
                key
                for key, share in assignment["shares"].items()
                if (ordinal, share["state"]) in self.never
            ]
            if said == (text, busy):
                continue
            self._do(ordinal, mine, assignment, busy)
            if await self._acknowledge(ordinal, text, assignment, busy):
                said = (text, busy)

    def ends(self, ordinal: int) -> None:
        """The adapter's process has ended."""
        for key in self.serving.pop(ordinal, {}):
            self._serve(ordinal, key, set())
            if not any(key in other for other in self.serving.values()):
                self.gaps.append(f"{key} on {ordinal}")

    async def assignment(self, ordinal: int):
        """What a pod is told."""
        return json.loads(await self.world.annotation(ordinal, ASSIGNMENT_ANNOTATION) or "")

    def _note(self, ordinal: int, assignment) -> None:
        for key, share in assignment["shares"].items():
            if [one for one in self.told if one[:2] == (ordinal, key)][-1:] != [
                (ordinal, key, share["state"])
            ]:
                self.told.append((ordinal, key, share["state"]))

    def _do(self, ordinal: int, mine: dict[str, int], assignment, busy: list[str]) -> None:
        shares = assignment["shares"]
        for key in list(mine):
            share = shares.get(key)
            if share is None or (share["state"] == "Drain" and key not in busy):
                del mine[key]
                self._serve(ordinal, key, set())
                if not any(key in other for other in self.serving.values()):
                    self.gaps.append(f"{key} on {ordinal}")
        for key, share in shares.items():
            if share["state"] == "Serve" and key not in busy:
                mine[key] = share["vreplicas"]
                self._serve(ordinal, key, indexes_of(share))
                all_of_it = sum(other.get(key, 0) for other in self.serving.values())
                self.most[key] = max(self.most.get(key, 0), all_of_it)

    def _serve(self, ordinal: int, key: str, indexes: set[int]) -> None:
        before = self.indexes.get((ordinal, key), set())
        self.indexes[ordinal, key] = indexes
        others = [one for at, one in self.indexes.items() if at[1] == key and at[0] != ordinal]
        elsewhere = set().union(*others)
        self.unserved |= {(key, index) for index in before - indexes - elsewhere}
        self.twice |= {(key, index) for index in indexes & elsewhere}

    async def _acknowledge(self, ordinal: int, text: str, assignment, busy: list[str]) -> bool:
        said = {"generation": assignment["generation"], "serving": 0, "busy": busy}
        path = "/metadata/annotations/"
        patch = [
            {"op": "test", "path": path + ASSIGNMENT_ANNOTATION.replace("/", "~1"), "value": text},
            {
                "op": "add",
                "path": path + ACKNOWLEDGED_ANNOTATION.replace("/", "~1"),
                "value": json.dumps(said),
            },
        ]
        try:
            await self.world.api.patch(
                PODS, NS, f"dispatcher-{ordinal}", patch, patch_type=PatchType.JSON
            )
        except (Conflict, Invalid):
            return False
        return True


def indexes_of(share: Mapping[str, Any]) -> set[int]:
    """What a share's ``indexes`` say."""
    found: set[int] = set()
    for part in filter(None, share.get("indexes", "").split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


@asynccontextmanager
async def adapters(world: World, *ordinals: int, **options) -> AsyncIterator[Adapters]:
    """Adapters of these ordinals."""
    known = Adapters(world, **options)
    async with adapters_beside(known, *ordinals):
        yield known


@asynccontextmanager
async def adapters_beside(known: Adapters, *ordinals: int) -> AsyncIterator[None]:
    """More of them."""
    tasks = [asyncio.create_task(known.run(ordinal)) for ordinal in ordinals]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def served(known: Adapters, vpod: str, wanted: dict[int, int]) -> Callable[[], bool]:
    """For ``until``: these adapters serve so many vreplicas of a vpod, and no others."""
    return lambda: {i: mine[vpod] for i, mine in known.serving.items() if vpod in mine} == wanted
