"""What the scenarios measured, as the table of docs/operations.md: written to
``build/e2e-nodes.md``.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).parents[2] / "build" / "e2e-nodes.md"
RESTARTS_FILE: Final = FILE.with_name("rolling-restart-nodes.md")
"""The table of ``make rolling-restart-nodes``."""
HEAD: Final = (
    "| what happens | until done | longest time with vreplicas unserved | "
    "vreplica-seconds unserved |\n"
    "|---|---|---|---|\n"
)


@dataclass(slots=True)
class Measurements:
    """Rows in the order of the scenarios."""

    rows: list[str] = field(default_factory=list)

    def add(
        self, what: str, done: str, longest_s: float | None = None, lost: float | None = None
    ) -> None:
        """One row; what was not measured is a dash."""
        longest = "-" if longest_s is None else f"{longest_s:.1f} s"
        self.rows.append(
            f"| {what} | {done} | {longest} | {'-' if lost is None else f'{lost:.0f}'} |"
        )
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(self.table())

    def table(self) -> str:
        """Markdown."""
        return HEAD + "\n".join(self.rows) + "\n"
