"""What becomes of the API server itself: events that it refuses."""

from collections.abc import Awaitable, Callable
from typing import Final

from extender.simulation.scale import NS, TENANTS
from extender.simulation.workload.acts import Scene

EVENTS_REFUSED_MAX_S: Final = 60.0


class ApiServerActs:
    """``acts`` by kind of ``ACT_KINDS``."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.acts: dict[str, Callable[[], Awaitable[bool]]] = {"eventsRefused": self._refuse_events}

    async def _refuse_events(self) -> bool:
        """By a namespace's quota or webhook, or for want of a role: nothing but these events is lost."""
        rng, faults = self._scene.rng, self._scene.world.faults
        namespace = rng.choice(("", NS, *TENANTS, *TENANTS))
        lasts_s = rng.uniform(EVENTS_REFUSED_MAX_S / 10, EVENTS_REFUSED_MAX_S)
        faults.refuse_events(namespace, lasts_s, forbidden=rng.random() < 0.3)
        return True
