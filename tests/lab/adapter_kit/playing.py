"""Shared by the tests of the kit: adapters as commands, and short limits."""

import random
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from extender.lab.adapter_kit.judging import Patience
from extender.lab.adapter_kit.run import Outcome, Result

SHORT: Final = Patience(step_s=3.0, start_s=5.0, silence_s=7.0, grace_s=2.0, work_s=1.5)
REPOSITORY: Final = Path(__file__).parents[3]


def program(name: str) -> list[str]:
    """The command of an adapter of ``adapters.py``."""
    return [
        "/usr/bin/env",
        f"PYTHONPATH={REPOSITORY}",
        sys.executable,
        str(REPOSITORY / "tests/lab/adapter_kit/adapters.py"),
        name,
    ]


def worker() -> list[str]:
    """The command of the Python library's worker."""
    clients = REPOSITORY / "clients/python"
    return [
        "/usr/bin/env",
        f"PYTHONPATH={clients}",
        sys.executable,
        str(clients / "examples/checked.py"),
    ]


def not_kept(results: Iterable[Result]) -> dict[str, str]:
    """What was expected and seen, by rule."""
    return {
        result.rule.name: f"expected {result.expected}, seen {result.seen}"
        for result in results
        if result.outcome is not Outcome.KEPT
    }


def two_free_ports() -> int:
    """The first of two ports, one after the other, on which nobody listens now."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
