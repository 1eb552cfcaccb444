"""Acts on callers of ``/v1/schedule``: they come, want more or fewer, crash, and give back what
they have.
"""

from collections.abc import Callable
from typing import Final

from extender.lab.simulation.workload.acts import Act, Scene
from extender.lab.simulation.world.callers import Caller
from extender.lab.simulation.world.scale import TENANTS

NAMES: Final = ("c1", "c2", "c3")
"""Names in each tenant. There are few, so that a new caller gets the name of one that is gone."""


class CallerActs:
    """Acts with their weights: ``always`` in every run with callers, ``sometimes`` in some."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.always = (Act("create caller", 4, self._create), Act("resize caller", 4, self._resize))
        self.sometimes = (
            Act("ask again", 2, self._ask_again),
            Act("reweigh caller", 0.7, self._reweigh),
            Act("crash caller", 2, self._crash),
            Act("release caller", 1.5, self._release),
        )

    def _with_any(self, do: Callable[[Caller], None]) -> bool:
        """Act on one of the callers; return False if there is none."""
        there = self._scene.world.callers.there()
        if there:
            do(self._scene.rng.choice(there))
        return bool(there)

    async def _create(self) -> bool:
        scene, rng = self._scene, self._scene.rng
        namespace, name, pool = rng.choice(TENANTS), rng.choice(NAMES), scene.pool_name()
        wanted, weight = rng.randint(1, 10), rng.choice((1, 1, 1, 2, 3))
        dice = scene.world.rng(f"caller {namespace}/{name} {rng.random()}")
        return scene.world.callers.come(namespace, name, wanted, weight, pool, dice)

    async def _resize(self) -> bool:
        rng = self._scene.rng
        return self._with_any(lambda caller: caller.wish(vreplicas=rng.choice((0, 1, 2, 4, 8, 12))))

    async def _reweigh(self) -> bool:
        return self._with_any(lambda caller: caller.wish(weight=self._scene.rng.randint(1, 4)))

    async def _ask_again(self) -> bool:
        return self._with_any(Caller.ask_soon)

    async def _crash(self) -> bool:
        """Crash at any moment, even with a request or an answer under way."""
        rng = self._scene.rng
        return self._with_any(
            lambda caller: caller.crash(rng.choice((0.0, 0.1, 5.0, 30.0)) * rng.random())
        )

    async def _release(self) -> bool:
        return self._with_any(Caller.give_back)
