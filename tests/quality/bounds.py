"""The bounds that ``make quality ARGS=--short`` holds each row to: the greatest mean difference to
the optimum, and the greatest difference of one instance.

They are what the engine reaches today, with a little room. Make them tighter when it becomes
better.
"""

from collections.abc import Mapping
from typing import Final

from tests.quality.table import Bound

UNPROVEN_MAX: Final = 0.05
"""The part of a row's instances that the solver may leave unfinished."""

BOUNDS: Final[Mapping[str, Bound]] = {
    "waits/default": Bound(0.05, 1),
    "waits/pack": Bound(0.05, 1),
    "waits/spread": Bound(0.05, 1),
    "waiting/default": Bound(0.05, 1),
    "waiting/pack": Bound(0.05, 1),
    "waiting/spread": Bound(0.05, 1),
    "room-unused/default": Bound(0.0, 0),
    "room-unused/pack": Bound(0.0, 0),
    "room-unused/spread": Bound(0.0, 0),
    "room-by-moves/default": Bound(0.5, 1),
    "jointly/default": Bound(0.4, 2),
    "jointly/pack": Bound(0.3, 2),
    "jointly/spread": Bound(0.5, 2),
    "moves-for-room/default": Bound(0.3, 2),
    "moves-for-room/pack": Bound(0.3, 2),
    "moves-for-room/spread": Bound(0.3, 2),
    "waits/ha": Bound(0.03, 1),
    "waiting/ha": Bound(0.03, 1),
    "pods-of-burst/ha": Bound(0.17, 1),
    "pods-of-burst/default": Bound(0.17, 1),
    "pods-after-deletion/default": Bound(0.1, 1),
    "pods-after-deletion/blocked": Bound(0.1, 1),
    "moves-of-compaction/default": Bound(0.65, 4),
    "moves-of-compaction/blocked": Bound(1.5, 8),
    "skew/spread": Bound(0.05, 1),
    "zone-changes/spread": Bound(0.1, 2),
    "load/ours": Bound(210.0, 250),
    "load/slicer": Bound(185.0, 200),
    "load/cadence": Bound(185.0, 200),
    "load-moves/slicer": Bound(0.1, 2),
    "load-moves/cadence": Bound(0.1, 2),
}
