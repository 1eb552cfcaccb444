"""Pure functions for a commit: the part of a decision that may be published, and the patch of a
pod's ledger.
"""

from collections.abc import Mapping

from extender.kube.api import Obj
from extender.model.amounts import NO_AMOUNTS, Amounts
from extender.model.counted import counted
from extender.model.ledger import Ledger, Share, encode_ledger, ledger_amounts, ledger_slots
from extender.model.names import PLACEMENTS_ANNOTATION, SLOTS_ANNOTATION
from extender.model.objects import AdapterPod, placement_order
from extender.service.placing.annotation_patch import (
    annotation_path,
    same_pod,
    same_text,
    set_text,
)


def publishable(
    decided: Mapping[str, int], ledgers: Mapping[str, int], published: Mapping[str, int]
) -> dict[str, int]:
    """Pod name -> vreplicas of a decision that may be published: those that a ledger covers, or
    that are published there already.

    Vreplicas that the ledger of their new pod does not cover stay published on the old pod, whose
    ledger still has them.
    """
    target = {
        name: min(count, max(ledgers.get(name, 0), published.get(name, 0)))
        for name, count in decided.items()
    }
    missing = sum(decided.values()) - sum(target.values())
    for name, count in published.items():
        back = min(missing, count - target.get(name, 0))
        if back > 0:
            target[name] = target.get(name, 0) + back
            missing -= back
    return {name: target[name] for name in sorted(target, key=placement_order) if target[name]}


def merged(ledger: Ledger, change: Mapping[str, Share]) -> dict[str, Share]:
    """The ledger with some shares replaced. A share of 0 removes the vpod."""
    result = {**ledger, **change}
    return {key: share for key, share in result.items() if share.vreplicas}


def ledger_patch(
    pod: AdapterPod, ledger: Ledger, slots: int, capacities: Amounts = NO_AMOUNTS
) -> list[Obj]:
    """The JSON patch that replaces a pod's ledger if neither the pod nor the ledger has changed.

    Raises LedgerTooLarge. Raises OverflowError if the ledger would grow beyond ``slots``, or beyond
    ``capacities`` in a dimension: such a ledger is never written.
    """
    total = ledger_slots(ledger)
    if total > slots and total > ledger_slots(pod.ledger):
        raise OverflowError(f"ledger of {counted(total, 'slot')} is over the pod's {slots}")
    if capacities:
        taken, before = ledger_amounts(ledger), ledger_amounts(pod.ledger)
        for name, most in capacities:
            if taken.get(name, 0) > max(most, before.get(name, 0)):
                raise OverflowError(f"ledger of {taken[name]} {name} is over the pod's {most}")
    patch = [same_pod(pod), same_text(pod, PLACEMENTS_ANNOTATION, pod.ledger_text)]
    if not pod.has_annotations:
        patch.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    patch.append(set_text(PLACEMENTS_ANNOTATION, encode_ledger(ledger)))
    if pod.slots is None:
        patch.append(set_text(SLOTS_ANNOTATION, str(slots)))
    return patch


def written_text(patch: list[Obj]) -> str:
    """The text of the ledger that a ``ledger_patch`` writes."""
    path = annotation_path(PLACEMENTS_ANNOTATION)
    return str(next(op["value"] for op in patch if op["op"] == "add" and op["path"] == path))


def covers(ledger: Ledger, change: Mapping[str, Share]) -> bool:
    """Whether the ledger already is as ``change`` would make it."""
    return all(
        ledger.get(key, Share(0)) == share or (not share.vreplicas and key not in ledger)
        for key, share in change.items()
    )
