"""``Crashes``: which vpods precede the crashes of a pool's pods. Pure.

A share can make its adapter crash, such as by a document that the adapter cannot parse. If the pod
is then not Ready for long enough, its vpods are placed elsewhere, and the next pod crashes. To stop
that, the vpod has to be found among all those that were on these pods.

A pod *crashes* when one of its containers fails and is started again (``AdapterPod.crashes``). A
crash counts against the vpods that the pod *got* within ``withinSeconds`` before it, and against no
others: what had been there for long did no harm. So the first crash usually counts against one vpod
alone, and the vpods that come from that pod to the next one are one crash behind it. A vpod is
*suspected* once crashes of ``crashedPods`` different pods count against it.

A vpod that every pod gets shortly before it crashes is suspected wrongly, such as while an image
that crashes is rolled out. Then most vpods are. So the caller suspects nobody if there are too many
(``Quarantine.vpods_max``).

A crash counts for ``REMEMBERED_S``. Times are seconds of one clock that never jumps.
"""

from collections.abc import Collection
from typing import Final

from extender.model.objects import AdapterPod

REMEMBERED_S: Final = 3600.0
"""A pod that crashes is given up after minutes only. So a vpod needs some of them for each pod."""
SHARES_MAX: Final = 100_000
"""Shares that are remembered of one pool: beyond that, the oldest ones are forgotten."""


class Crashes:
    """The crashes of one pool, of which the caller shows each change of a pod."""

    def __init__(self, within_s: float) -> None:
        self.within_s = within_s
        self._known: dict[str, Collection[str]] = {}
        """Pod name -> keys of the vpods that were last in its ledger. A pod that is made anew under
        its name gets these back, and that is no news for its adapter.
        """
        self._got: dict[tuple[str, str], float] = {}
        """(pod, vpod) -> when the pod got it, in the order of time."""
        self._counted: dict[str, dict[str, float]] = {}
        """Vpod key -> name of a pod -> its last crash that counts against the vpod."""

    def __len__(self) -> int:
        """Number of the shares that are remembered."""
        return len(self._got) + sum(map(len, self._counted.values()))

    def pod_changed(self, old: AdapterPod | None, new: AdapterPod | None, now: float) -> list[str]:
        """A pod came, changed or went. Return the keys of the vpods against which a crash counts
        now.
        """
        if new is None or new.assumed:
            return []
        self._forget_old(now)
        before = self._known.get(new.name)
        if before is None or new.ledger.keys() != set(before):
            self._known[new.name] = frozenset(new.ledger)
            for key in new.ledger.keys() - set(new.ledger if before is None else before):
                self._got.pop((new.name, key), None)
                self._got[new.name, key] = now
        if old is None or old.uid != new.uid or new.crashes <= old.crashes:
            return []
        found = [key for name, key in self._got if name == new.name and key in old.ledger]
        for key in found:
            self._counted.setdefault(key, {})[new.name] = now
        return found

    def suspected(self, crashed_pods: int, now: float) -> dict[str, list[str]]:
        """Key of each suspected vpod -> the names of the pods that have crashed."""
        self._forget_old(now)
        return {
            key: sorted(pods) for key, pods in self._counted.items() if len(pods) >= crashed_pods
        }

    def forget(self, vpod_key: str) -> None:
        """Nothing counts against a vpod any more: a person has released it, or it is gone."""
        self._counted.pop(vpod_key, None)

    def keep_pods(self, names: Collection[str]) -> None:
        """Forget the pods that the pool no longer has."""
        self._known = {name: keys for name, keys in self._known.items() if name in names}

    def _forget_old(self, now: float) -> None:
        while self._got:
            first = next(iter(self._got))
            if now - self._got[first] <= self.within_s and len(self._got) <= SHARES_MAX:
                break
            del self._got[first]
        for key, pods in list(self._counted.items()):
            left = {name: at for name, at in pods.items() if now - at <= REMEMBERED_S}
            if len(left) < len(pods):
                self._counted[key] = left
            if not left:
                del self._counted[key]
