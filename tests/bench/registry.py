"""The benches by name, in the order in which they run: what is quick first.

Each is a module with a function ``bench``, imported when it runs, so that one bench does not need
what another one does.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Final

from tests.bench.options import Options
from tests.bench.result import Result

Bench = Callable[[Options], Iterable[Result]]
"""Yields each result as soon as it is known. Raises Skipped where the machine lacks what it takes.
"""


class Skipped(Exception):
    """This bench cannot run here; the text says what is missing."""


def _of(module: str) -> Bench:
    def run(options: Options) -> Iterable[Result]:
        bench: Bench = import_module(f"tests.bench.{module}").bench
        return bench(options)

    return run


BENCHES: Final[dict[str, Bench]] = {
    "engine": _of("engine"),
    "webhook": _of("webhook"),
    "memory": _of("memory"),
    "questions": _of("questions"),
    "simulation": _of("simulation"),
    "verbs": _of("verbs"),
    "cold-start": _of("cold_start"),
    "replicas": _of("replicas"),
    "throughput": _of("throughput"),
    "end-to-end": _of("end_to_end"),
}
