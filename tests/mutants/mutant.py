"""``Mutant``: one deliberate break of the code, and what has to catch it."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


class DoesNotApply(Exception):
    """The text to be replaced is not there exactly once: the code has changed, and the mutant has to be looked at again."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` stands exactly once in ``file`` (path from the root) and becomes ``new``.

    ``caught_by``: pytest node ids, without parameters; or one simulation, as ``simulate --seed 7 --seeds 1``.
    """

    name: str
    file: str
    old: str
    new: str
    why: str
    caught_by: tuple[str, ...]

    def applied_to(self, text: str) -> str:
        """The broken text. Raises DoesNotApply."""
        found = text.count(self.old)
        if found != 1:
            raise DoesNotApply(
                f"{self.name}: its text stands {found} times in {self.file}; look at the mutant again"
            )
        return text.replace(self.old, self.new)

    @property
    def simulation(self) -> list[str]:
        """Arguments of ``vreplica`` where a simulation is to catch it, else none."""
        return self.caught_by[0].split() if self.caught_by[0].startswith("simulate ") else []
