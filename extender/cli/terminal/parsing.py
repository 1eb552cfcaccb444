"""Shared by the commands: types of options, and functions that run a coroutine."""

import argparse
import asyncio
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final, TypeAlias

from extender.model.errors import InvalidObject

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


def port(value: str) -> int:
    """Read a port."""
    if not value.isdigit() or int(value) > 65535:
        raise argparse.ArgumentTypeError(f"{value!r} is not a port: 0 to 65535")
    return int(value)


def text_of(name: str) -> str:
    """Read a file. Raises InvalidObject."""
    try:
        return Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidObject(name, "", f"cannot be read: {error}") from error


def ask(question: Callable[[], Coroutine[None, None, int]]) -> int:
    """Run a command that ends by itself. Ctrl-C raises KeyboardInterrupt."""
    return asyncio.run(question())


def asyncio_run(main_coroutine: Callable[[], Coroutine[None, None, int]]) -> int:
    """Run on uvloop. SIGTERM and SIGINT cancel the coroutine; the result is then 0.

    A second signal ends the process at once: another cancellation would leave the clean-up half
    done.
    """
    import uvloop  # noqa: PLC0415

    async def supervised() -> int:
        task = asyncio.ensure_future(main_coroutine())
        loop = asyncio.get_running_loop()

        def stop() -> None:
            for signum in STOPPING:
                loop.remove_signal_handler(signum)
            task.cancel()

        for signum in STOPPING:
            loop.add_signal_handler(signum, stop)
        try:
            return await task
        except asyncio.CancelledError:
            return 0

    return uvloop.run(supervised())
