"""``AdapterLoads``: what adapters measure. ``LoadReporter``: adapters that report it (``POST
/v1/load``), in the part ``load``.

Each vpod's vreplicas have the same load wherever they are, up to 20-fold different from vpod to
vpod, and reports have 10 % of noise. Until ``calm``, some reports are missing or make no sense. All
replicas are asked, because an adapter does not know who leads.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from extender.kube.api import Obj
from extender.lab.simulation.world.facts import PLACEMENTS
from extender.lab.simulation.world.replica import Replica
from extender.lab.simulation.world.scale import LOAD_METRIC, NS, pool_of
from extender.model.errors import LedgerUnreadable
from extender.model.ledger import decode_ledger
from extender.model.objects import object_key

REPORT_S: Final = 5.0
SKEW: Final = 20.0
NOISE: Final = 0.1
ODD_SHARE: Final = 0.05
"""Of the reports while faults happen."""
ODD_FACTORS: Final = (-1.0, 0.0, 1e7)


class AdapterLoads:
    """``pods``: returns the stored pods by (namespace, name). ``dice``: for one purpose."""

    def __init__(
        self,
        dice: Callable[[str], random.Random],
        *,
        pods: Callable[[], Mapping[tuple[str, str], Obj]],
    ) -> None:
        self._dice = dice
        self._rng = dice("load")
        self._pods = pods
        self._rates: dict[str, float] = {}
        """By vpod key, of all that ever were."""
        self.calm = False

    def reports(self) -> dict[str, list[dict[str, Any]]]:
        """Pool name -> reports of its pods."""
        found: dict[str, list[dict[str, Any]]] = {}
        for (_, name), pod in self._pods().items():
            try:
                ledger = decode_ledger((pod["metadata"].get("annotations") or {}).get(PLACEMENTS))
            except LedgerUnreadable:
                continue
            for key, share in sorted(ledger.items()):
                load = self._rate(key) * share.vreplicas * self._factor()
                if load:
                    report = {"vpod": key, "pod": name, "load": load}
                    found.setdefault(pool_of(name), []).append(report)
        return found

    def _rate(self, key: str) -> float:
        if key not in self._rates:
            self._rates[key] = SKEW ** self._dice(f"load {key}").random()
        return self._rates[key]

    def _factor(self) -> float:
        """Noise; or an odd factor, 0 for no report."""
        if not self.calm and self._rng.random() < ODD_SHARE:
            return self._rng.choice(ODD_FACTORS)
        return 1.0 + self._rng.uniform(-NOISE, NOISE)


class LoadReporter:
    """Reports every ``REPORT_S``."""

    def __init__(self, loads: AdapterLoads, *, replicas: Callable[[], list[Replica]]) -> None:
        self._loads = loads
        self._replicas = replicas

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await asyncio.sleep(REPORT_S)
            for pool, reports in sorted(self._loads.reports().items()):
                body = orjson.dumps(
                    {"pool": object_key(NS, pool), "metric": LOAD_METRIC, "reports": reports}
                )
                for replica in self._replicas():
                    replica.report_load(body)
