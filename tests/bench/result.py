"""``Result``: what one measurement came to, as a line of JSON or a row of a table."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Value = str | int | float | None


@dataclass(frozen=True)
class Result:
    """``case`` says what was measured (ordered, for people), ``figures`` what came out: a unit ends
    each figure's name.

    A figure that is a ratio to a peer measured in the same run ends in ``Ratio``: those are what
    may be compared between machines.
    """

    bench: str
    case: Mapping[str, Value]
    figures: Mapping[str, Value]

    def json_line(self) -> str:
        """One object; the case's and the figures' names side by side."""
        return json.dumps({"bench": self.bench, **self.case, **self.figures})


def table(results: Iterable[Result]) -> str:
    """Rows of one bench with the same columns under one heading."""
    blocks: dict[tuple[str, ...], list[list[str]]] = {}
    for result in results:
        columns = (result.bench, *result.case, *result.figures)
        row = ["", *map(_shown, result.case.values()), *map(_shown, result.figures.values())]
        blocks.setdefault(columns, []).append(row)
    return "\n\n".join(_aligned([list(columns), *rows]) for columns, rows in blocks.items())


def _shown(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
