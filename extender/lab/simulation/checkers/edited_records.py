"""``EditedRecords``: ledgers and statuses that somebody other than the service has made wrong. They
are excused until they are correct again, and for a while after that.
"""

from collections.abc import Iterable

from extender.lab.simulation.checkers.excuses import Excuses
from extender.lab.simulation.world.facts import VPod, in_force


class EditedRecords:
    """Wrong ledgers by pod name, wrong statuses by vpod, and the recent weights (slots of one
    vreplica) of vpods.
    """

    def __init__(self, excuses: Excuses) -> None:
        self._excuses = excuses
        self._ledgers: set[str] = set()
        self._statuses: set[str] = set()
        self._weights: dict[str, list[tuple[float, int]]] = {}
        """Vpod -> (since when, weight)."""

    # -- ledgers -----------------------------------------------------------------------------------

    def break_ledgers(self, pod_names: Iterable[str]) -> None:
        """From now on these ledgers may be wrong."""
        self._ledgers.update(pod_names)

    def ledger_is_right(self, pod_name: str) -> None:
        """The ledger covers what is published, and fits."""
        if pod_name in self._ledgers:
            self._ledgers.discard(pod_name)
            self.excuse_ledger(pod_name)

    def excuse_ledger(self, pod_name: str, lasts_s: float | None = None) -> None:
        """The ledger is correct, but for ``lasts_s`` a decision may still have seen it wrong. None:
        as long as for any cause.
        """
        self._excuses.note(f"unrepaired {pod_name}", lasts_s)

    def was_ledger_wrong(self, pod_name: str) -> bool:
        """Return whether the ledger is wrong or was wrong lately."""
        return pod_name in self._ledgers or self._excuses.holds(f"unrepaired {pod_name}")

    # -- statuses ----------------------------------------------------------------------------------

    def status_edited(self, vpod: VPod) -> None:
        """Somebody other than the service has written the status."""
        self._statuses.add(vpod.key)
        # The status may overcommit the pod, and then any vpod on it may have to give slots up.
        self.break_ledgers(vpod.placements)

    def status_is_covered(self, vpod: str) -> None:
        """The ledgers cover all that the status says."""
        if vpod in self._statuses:
            self._statuses.discard(vpod)
            self._excuses.note(f"edited {vpod}")

    def status_is_gone(self, vpod: str) -> None:
        """The object is deleted."""
        self._statuses.discard(vpod)

    def was_edited(self, vpod: str) -> bool:
        """Return whether somebody else wrote the status, and it is or was lately uncovered."""
        return vpod in self._statuses or self._excuses.holds(f"edited {vpod}")

    # -- weights -----------------------------------------------------------------------------------

    def weighed(self, old: VPod | None, new: VPod) -> None:
        """Record the weight of a vpod. After a change, the ledgers that have the vpod are wrong
        until the service writes them again.
        """
        if old is not None and old.weight == new.weight:
            return
        self._weights.setdefault(new.key, []).append((self._excuses.clock(), new.weight))
        if old is not None:
            self._excuses.note(f"weight {new.key}")
            self.break_ledgers(new.placements)

    def heaviest_lately(self, vpod: str) -> int:
        """Return the highest weight of the vpod that a decision written now may have seen."""
        return max(in_force(self._weights.get(vpod, ()), self._excuses.since()), default=1)
