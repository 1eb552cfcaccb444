"""``within_slots``: what several sources say that a pod carries, cut to the slots that it has (I1)."""

from collections.abc import Mapping

from extender.core.ledger import Share


def within_slots(slots: int, *sources: Mapping[str, Share]) -> dict[str, Share]:
    """The shares of all sources (vpod key -> share), cut so that they never take more than ``slots`` together (I1).

    A vpod in several sources gets the largest of its shares. Where the slots do not suffice, earlier sources come first and
    in each of them the vpods in the order of their keys, so that every replica cuts the same; a share may be cut to
    part of its vreplicas. A vpod that has several weights gets that of the first source.
    """
    free = slots
    ledger: dict[str, Share] = {}
    for source in sources:
        for key, share in sorted(source.items()):
            known = ledger.get(key)
            had, weight = known if known is not None else (0, share.weight)
            if (more := min(share.vreplicas - had, free // weight)) > 0:
                ledger[key] = Share(had + more, weight)
                free -= more * weight
    return ledger
