"""``Row``: one line of the table, and ``Pair``: what it finds in one instance."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.quality.instances import Instance


@dataclass(frozen=True, slots=True)
class Pair:
    """One instance of a row. ``proven``: whether the solver has finished."""

    ours: int
    optimum: int
    proven: bool = True


UNPROVEN: Final = Pair(0, 0, proven=False)
"""An instance about which the solver could say nothing."""

Measure = Callable[[Instance], Pair | None]


@dataclass(frozen=True, slots=True)
class Row:
    """``what`` is counted, in the instances that ``draw`` draws. ``fitting``: only in those whose
    slots allow all vpods under maxPods.
    """

    name: str
    what: str
    draw: Callable[[int], Instance]
    measure: Measure
    fitting: bool = True
