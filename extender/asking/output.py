"""Answers on standard output, as tables, JSON or YAML; what takes long says so on standard error."""

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import yaml
from rich.console import Console

SILENT_S: Final = 2.0
"""After that it is told that something is still being done."""
PERIOD_S: Final = 5.0
"""And from then on again, where there is no terminal to keep a line up to date on."""


def show(
    answer: Mapping[str, Any], output: str, tables: Callable[[Console, Mapping[str, Any]], None]
) -> None:
    """Print an answer: ``json`` on one line, ``yaml``, or by ``tables``."""
    match output:
        case "json":
            print(json.dumps(answer))
        case "yaml":
            print(yaml.safe_dump(_plain(answer), sort_keys=False, allow_unicode=True), end="")
        case _:
            tables(Console(), answer)


def _plain(value: Any) -> Any:
    """As YAML's safe writer takes it: no mapping but a dict, no text of a class of its own."""
    match value:
        case Mapping():
            return {str(key): _plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case str():
            return str(value)
        case _:
            return value


Tell = Callable[[str], None]
"""Takes what is being done now, in a few words."""


def untold(_what: str) -> None:
    """Nobody is told."""


@contextmanager
def working(command: str, what: str) -> Iterator[Tell]:
    """Say on standard error what is being done, if it takes more than ``SILENT_S``: a live line, or one each ``PERIOD_S``.

    What is yielded takes the next thing that is being done.
    """
    console = Console(stderr=True)
    status = console.status(what) if console.is_terminal else None
    now, done = [what], threading.Event()

    def tell(next_thing: str) -> None:
        now[0] = next_thing
        if status is not None:
            status.update(next_thing)

    def watch() -> None:
        if done.wait(SILENT_S):
            return
        if status is not None:
            status.start()
            return
        while True:
            print(f"vreplica {command}: {now[0]} ...", file=sys.stderr, flush=True)
            if done.wait(PERIOD_S):
                return

    watching = threading.Thread(target=watch, name="progress", daemon=True)
    watching.start()
    try:
        yield tell
    finally:
        done.set()
        watching.join()
        if status is not None:
            status.stop()
