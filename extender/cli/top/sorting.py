"""The orders in which ``vreplica top`` lists pods. Separate from the view, so that the command line
imports less. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from extender.model.objects import placement_order

Row: TypeAlias = Mapping[str, object]

SORTS: Final = ("urgency", "used", "free", "vpods", "name")


def sort_pods(pods: Sequence[Row], sort: str) -> list[Row]:
    """Sort the pods. They come in the order of urgency."""
    match sort:
        case "used":
            return sorted(pods, key=lambda row: -count(row, "usedSlots"))
        case "free":
            return sorted(pods, key=lambda row: -count(row, "freeSlots"))
        case "vpods":
            return sorted(pods, key=lambda row: -count(row, "vpods"))
        case "name":
            return sorted(
                pods, key=lambda row: (str(row.get("pool")), placement_order(str(row.get("name"))))
            )
        case _:
            return list(pods)


def count(row: Row, name: str) -> int:
    """A number of a row, 0 if a replica of another version does not send it."""
    value = row.get(name)
    return value if isinstance(value, int) else 0
