"""The outcome of one conformance case, as a suite's check function gives it.

None: we do the same as upstream. A string: we do not, and this is how. A ``Difference``: we do not, on purpose.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Case = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """A deliberate difference: the ``rule``'s name, and why we differ. A rule is a condition on a case's input."""

    rule: str
    reason: str


Check = Callable[[Case], str | Difference | None]
