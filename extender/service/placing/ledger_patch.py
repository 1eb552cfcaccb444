"""What a commit writes, as values: which part of a decision may be published, and the patch of a
pod's ledger.
"""

from collections.abc import Mapping
from typing import Final

from extender.kube.api import Obj
from extender.model.counted import counted
from extender.model.ledger import Ledger, Share, encode_ledger, ledger_slots
from extender.model.names import PLACEMENTS_ANNOTATION, SLOTS_ANNOTATION
from extender.model.objects import AdapterPod, placement_order

_PLACEMENTS_PATH: Final = "/metadata/annotations/" + PLACEMENTS_ANNOTATION.replace("/", "~1")


def publishable(
    decided: Mapping[str, int], ledgers: Mapping[str, int], published: Mapping[str, int]
) -> dict[str, int]:
    """Pod name -> vreplicas to publish of a decision: what ledgers cover, or what is published
    there already.

    What a move did not get on its new pod stays published on the old one, whose ledger still has
    it.
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
    """A ledger with some shares replaced; a share of 0 leaves it."""
    result = {**ledger, **change}
    return {key: share for key, share in result.items() if share.vreplicas}


def ledger_patch(pod: AdapterPod, ledger: Ledger, slots: int) -> list[Obj]:
    """The JSON patch that swaps a pod's ledger, if the pod and its ledger are still as known.

    Raises LedgerTooLarge, and OverflowError where the ledger grows beyond ``slots``: never written,
    however it came about.
    """
    total = ledger_slots(ledger)
    if total > slots and total > ledger_slots(pod.ledger):
        raise OverflowError(f"ledger of {counted(total, 'slot')} is over the pod's {slots}")
    path = _PLACEMENTS_PATH
    patch: list[Obj] = [{"op": "test", "path": "/metadata/uid", "value": pod.uid}]
    if pod.ledger_text is None:
        # There is no text to compare with, so compare the version: nobody else may have begun a
        # ledger.
        patch.append(
            {"op": "test", "path": "/metadata/resourceVersion", "value": pod.resource_version}
        )
    else:
        patch.append({"op": "test", "path": path, "value": pod.ledger_text})
    if not pod.has_annotations:
        patch.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    patch.append({"op": "add", "path": path, "value": encode_ledger(ledger)})
    if pod.slots is None:
        patch.append(
            {
                "op": "add",
                "path": "/metadata/annotations/" + SLOTS_ANNOTATION.replace("/", "~1"),
                "value": str(slots),
            }
        )
    return patch


def written_text(patch: list[Obj]) -> str:
    """The ledger's text that a ``ledger_patch`` writes."""
    return str(
        next(op["value"] for op in patch if op["op"] == "add" and op["path"] == _PLACEMENTS_PATH)
    )


def covers(ledger: Ledger, change: Mapping[str, Share]) -> bool:
    """Whether a ledger says already what a change would make of it."""
    return all(
        ledger.get(key, Share(0)) == share or (not share.vreplicas and key not in ledger)
        for key, share in change.items()
    )
