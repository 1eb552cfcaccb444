"""Which shares a ledger has beside the status because they are handed over
(``engine.placing.handover``): it has them before the status may publish them, and keeps them until
the adapter has let go.
"""

from collections.abc import Iterable
from typing import Final

from extender.engine.placing.handover import Adapter
from extender.model.assignment import ShareState, decode_acknowledged, decode_assignment
from extender.model.objects import AdapterPod, VPod
from extender.model.timestamps import epoch_s

LATE_S: Final = 60.0
"""How long after its deadline a share may still be there. The reconciler runs each minute, and our
clock is not the leader's.
"""


def is_handed_over(
    pod: AdapterPod, key: str, vpod: VPod | None, published_on: Iterable[AdapterPod], now_s: float
) -> bool:
    """Whether the pod's assignment explains that its ledger has more of the vpod ``key`` than is
    published. ``vpod``: None if it does not exist. ``published_on``: the pods that it publishes.
    """
    adapter = _adapter(pod)
    told = adapter.share_of(key)
    if told is None:
        return False
    # An exclusive or indexed adapter may have to wait before it is told all that the ledger has.
    is_told_all = not (adapter.needs_lease or told.indexes)
    if is_told_all and told.vreplicas < pod.ledger[key].vreplicas:
        return False
    if told.state is ShareState.DRAIN:
        return now_s < epoch_s(told.deadline, 0.0) + LATE_S
    if vpod is None or vpod.pool != pod.pool:
        return False  # nothing is prepared for it, and nobody takes it over
    # A pod that has some already is told to serve more, and one that loses some goes on: both wait
    # for adapters that have yet to do what they are told.
    return told.state is ShareState.PREPARE or any(
        _is_behind(_adapter(one), key) for one in (pod, *published_on)
    )


def _adapter(pod: AdapterPod) -> Adapter:
    return Adapter(
        decode_assignment(pod.assignment_text, pod.uid), decode_acknowledged(pod.acknowledged_text)
    )


def _is_behind(adapter: Adapter, vpod: str) -> bool:
    """Whether it acknowledges, and has yet to do what it is told of the vpod."""
    is_told = adapter.acknowledged is not None and adapter.share_of(vpod) is not None
    return is_told and not adapter.has_done(vpod)
