"""The table: one line for each row of ``rows``, and the bounds that a short run is held to."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.quality.instances import Instance
from tests.quality.row import UNPROVEN, Pair, Row
from tests.quality.rows import fits

HEADER: Final = (
    "row", "instances", "unproven", "ours", "mean", "p95", "worst", "optimum", "mean",
    "difference", "worst", "in", "seeds",
)  # fmt: skip


@dataclass(slots=True)
class Figures:
    """What a row has found. ``pairs``: by the seed of the instance. ``seeds``: those that were
    looked at. ``unproven``: instances that the solver did not finish; they are in ``pairs`` if it
    found an answer at all, which is then no better than the optimum.
    """

    row: Row
    pairs: dict[int, Pair] = field(default_factory=dict)
    seeds: range = range(0)
    unproven: int = 0

    @property
    def ours(self) -> list[int]:
        return sorted(pair.ours for pair in self.pairs.values())

    @property
    def ours_sum(self) -> int:
        return sum(self.ours)

    @property
    def optimum_sum(self) -> int:
        return sum(pair.optimum for pair in self.pairs.values())

    @property
    def difference(self) -> float:
        """The mean difference to the optimum."""
        return (self.ours_sum - self.optimum_sum) / max(1, len(self.pairs))

    @property
    def worst(self) -> tuple[int, int]:
        """The greatest difference to the optimum, and the seed of its instance."""
        found = ((pair.ours - pair.optimum, -seed) for seed, pair in self.pairs.items())
        difference, seed = max(found, default=(0, 0))
        return difference, -seed


@dataclass(frozen=True, slots=True)
class Bound:
    """``mean`` and ``worst``: the greatest differences to the optimum that a short run may have."""

    mean: float
    worst: int


def measured(row: Row, first_seed: int, number: int) -> Figures:
    """The row's figures for the first ``number`` instances from this seed on."""
    found = Figures(row)
    seed, instances = first_seed, 0
    while instances < number:
        instance = row.draw(seed)
        seed += 1
        try:
            if row.fitting and not fits(instance):
                continue
            pair = row.measure(instance)
        except TimeoutError:
            pair = UNPROVEN
        except Exception as error:
            error.add_note(f"{row.name}, seed {instance.seed}")
            raise
        instances += 1
        _add(found, instance, pair)
    found.seeds = range(first_seed, seed)
    return found


def _add(found: Figures, instance: Instance, pair: Pair | None) -> None:
    if pair is None:
        return
    found.unproven += not pair.proven
    if pair is not UNPROVEN:
        found.pairs[instance.seed] = pair


def broken(figures: Figures, bounds: Mapping[str, Bound], unproven_max: float) -> Iterator[str]:
    """A sentence for each bound that the figures break. ``unproven_max``: the part of the instances
    that the solver may leave unfinished.
    """
    name = figures.row.name
    bound = bounds.get(name)
    if bound is None:
        yield f"{name}: no bound"
        return
    if figures.difference > bound.mean:
        yield f"{name}: mean difference {figures.difference:.2f}, at most {bound.mean:.2f}"
    worst, seed = figures.worst
    if worst > bound.worst:
        yield f"{name}: difference {worst} in seed {seed}, at most {bound.worst}"
    if figures.unproven > unproven_max * max(1, len(figures.pairs)):
        yield f"{name}: {figures.unproven} unproven"


def line(figures: Figures) -> tuple[str, ...]:
    """The cells of one row."""
    ours, number = figures.ours, len(figures.pairs)
    worst, seed = figures.worst
    seeds = figures.seeds
    return (
        f"{figures.row.name} ({figures.row.what})",
        str(number),
        str(figures.unproven),
        str(figures.ours_sum),
        _mean(figures.ours_sum, number),
        str(ours[math.ceil(0.95 * number) - 1]) if ours else "-",
        str(ours[-1]) if ours else "-",
        str(figures.optimum_sum),
        _mean(figures.optimum_sum, number),
        _difference(figures.ours_sum, figures.optimum_sum),
        f"{worst:+}" if ours else "-",
        f"seed {seed}" if ours and worst > 0 else "-",
        f"{seeds.start}-{seeds.stop - 1}",
    )


def _mean(total: int, number: int) -> str:
    return f"{total / number:.2f}" if number else "-"


def _difference(ours: int, optimum: int) -> str:
    return f"{100 * (ours - optimum) / optimum:+.1f} %" if optimum else f"{ours - optimum:+}"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """The lines as columns: the first to the left, the others to the right."""
    widths = [max(len(cells[column]) for cells in lines) for column in range(len(lines[0]))]
    align: list[Callable[[str, int], str]] = [str.ljust, *[str.rjust] * (len(widths) - 1)]
    return "\n".join(
        "  ".join(put(cell, width) for put, cell, width in zip(align, cells, widths, strict=True))
        for cells in lines
    )
