"""Shared by the commands: types of options, and functions that run a coroutine."""

import argparse
import asyncio
import re
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


def setting(*, over_time: bool) -> Callable[[str], tuple[str, int]]:
    """Make the type of ``--set FIELD=NUMBER``, which checks the field and its minimum. Its result
    is (field, number). ``over_time``: also the fields that only a replay may change.
    """

    def read(text: str) -> tuple[str, int]:
        from extender.whatif.settings import OVER_TIME, SETTINGS  # noqa: PLC0415

        fields = OVER_TIME if over_time else SETTINGS
        field, equals, number = text.partition("=")
        if not equals or not re.fullmatch(r"[0-9]{1,10}", number):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not FIELD=NUMBER, such as slotsPerPod=22"
            )
        if field not in fields:
            raise argparse.ArgumentTypeError(
                f"{field!r} cannot be set (can be: {', '.join(sorted(fields))})"
            )
        if int(number) < fields[field][1]:
            raise argparse.ArgumentTypeError(
                f"{field} is at least {fields[field][1]}, not {number}"
            )
        return field, int(number)

    return read


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
