"""The benches by name, in the order in which they run: what is quick first."""

from collections.abc import Callable, Iterable
from typing import Final

from tests.bench.options import Options
from tests.bench.result import Result

Bench = Callable[[Options], Iterable[Result]]
"""Yields each result as soon as it is known. Raises Skipped where the machine lacks what it takes."""


class Skipped(Exception):
    """This bench cannot run here; the text says what is missing."""


BENCHES: Final[dict[str, Bench]] = {}
