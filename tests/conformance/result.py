"""The outcome of one conformance case, as a suite's check function gives it.

None: we do the same as upstream. A string: we do not, and this is how. A ``Difference``: we do not,
on purpose; one that is ``offered`` can be switched off by a profile or option of the product: with
that the case agrees.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Case = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """A deliberate difference: the ``rule``'s name, and why we differ. A rule is a condition on a
    case's input.

    ``offered``: the profile or option with which the case agrees, "" if none. ``outside``: the case
    is about something that this project does not do at all, so it says nothing about how much of
    what we do differs.
    """

    rule: str
    reason: str
    offered: str = ""
    outside: bool = False


Check = Callable[[Case], str | Difference | None]
