"""``Broken``: what somebody else has made wrong, which is excused until it has been right once, and
for a while after.
"""

from collections.abc import Iterable

from extender.lab.simulation.checkers.excuses import Excuses
from extender.lab.simulation.world.facts import VPod, in_force


class Broken:
    """Ledgers by pod name, statuses by vpod, and how heavy vreplicas were."""

    def __init__(self, excuses: Excuses) -> None:
        self._excuses = excuses
        self._ledgers: set[str] = set()
        self._statuses: set[str] = set()
        self._weights: dict[str, list[tuple[float, int]]] = {}
        """Vpod -> (since when, slots of one vreplica)."""

    # -- ledgers -----------------------------------------------------------------------------------

    def break_ledgers(self, pod_names: Iterable[str]) -> None:
        """They may be wrong from now on."""
        self._ledgers.update(pod_names)

    def ledger_is_right(self, pod_name: str) -> None:
        """It covers what is published, and fits."""
        if pod_name in self._ledgers:
            self._ledgers.discard(pod_name)
            self.excuse_ledger(pod_name)

    def excuse_ledger(self, pod_name: str, lasts_s: float | None = None) -> None:
        """It is right, and may have been wrong in the eyes of who decides for so long; None: as
        long as any cause.
        """
        self._excuses.note(f"unrepaired {pod_name}", lasts_s)

    def was_ledger_wrong(self, pod_name: str) -> bool:
        """Whether it is wrong, or was lately."""
        return pod_name in self._ledgers or self._excuses.holds(f"unrepaired {pod_name}")

    # -- statuses ----------------------------------------------------------------------------------

    def status_edited(self, vpod: VPod) -> None:
        """Somebody else has written it."""
        self._statuses.add(vpod.key)
        # What it claims there may overcommit the pod, to be trimmed from any vpod.
        self.break_ledgers(vpod.placements)

    def status_is_covered(self, vpod: str) -> None:
        """Ledgers have all that it says."""
        if vpod in self._statuses:
            self._statuses.discard(vpod)
            self._excuses.note(f"edited {vpod}")

    def status_is_gone(self, vpod: str) -> None:
        """With its object."""
        self._statuses.discard(vpod)

    def was_edited(self, vpod: str) -> bool:
        """Whether somebody else has written its status, and it is not covered again, or was not
        lately.
        """
        return vpod in self._statuses or self._excuses.holds(f"edited {vpod}")

    # -- weights -----------------------------------------------------------------------------------

    def weighed(self, old: VPod | None, new: VPod) -> None:
        """A vpod as it is now: with another weight, ledgers that have it are wrong until they are
        written anew.
        """
        if old is not None and old.weight == new.weight:
            return
        self._weights.setdefault(new.key, []).append((self._excuses.clock(), new.weight))
        if old is not None:
            self._excuses.note(f"weight {new.key}")
            self.break_ledgers(new.placements)

    def heaviest_lately(self, vpod: str) -> int:
        """Slots of one of its vreplicas, as a decision written now may have seen it at the most."""
        return max(in_force(self._weights.get(vpod, ()), self._excuses.since()), default=1)
