"""``Mutant``: one deliberate break of the code, and what has to catch it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SIMULATE: Final = "simulate "


class DoesNotApply(Exception):
    """The text to be replaced is not there exactly once: the code has changed, and the mutant has to be looked at again."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` stands exactly once in ``file`` (path from the root) and becomes ``new``.

    ``caught_by``: pytest node ids, with parameters or without, of which one has to fail; and arguments of ``vreplica`` that begin with
    ``simulate``, each of which has to find something by itself.

    ``hangs``: what it breaks may never end, which is as good as caught.
    """

    name: str
    file: str
    old: str
    new: str
    why: str
    caught_by: tuple[str, ...]
    hangs: bool = False

    def applied_to(self, text: str) -> str:
        """The broken text. Raises DoesNotApply."""
        found = text.count(self.old)
        if found != 1:
            raise DoesNotApply(
                f"{self.name}: its text stands {found} times in {self.file}; look at the mutant again"
            )
        return text.replace(self.old, self.new)

    @property
    def tests(self) -> list[str]:
        """The node ids among what is to catch it."""
        return [catcher for catcher in self.caught_by if not catcher.startswith(SIMULATE)]

    @property
    def simulations(self) -> list[str]:
        """The simulations among what is to catch it."""
        return [catcher for catcher in self.caught_by if catcher.startswith(SIMULATE)]
