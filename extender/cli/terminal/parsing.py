"""Shared by the commands: types of options, and functions that run a coroutine."""

import argparse
import asyncio
import re
import signal
from collections.abc import Callable, Coroutine
from typing import Final, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
SECONDS_MAX: Final = 366 * 86400.0
"""A year, the longest time that an option takes."""
_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES: Final = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def port(value: str) -> int:
    """Read a port."""
    if not value.isdigit() or int(value) > 65535:
        raise argparse.ArgumentTypeError(f"{value!r} is not a port: 0 to 65535")
    return int(value)


def seconds(value: str) -> float:
    """Read a duration such as ``90s``, ``10m`` or ``2h``; return seconds, more than 0."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd]?)", value)
    amount = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < amount <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(
            f"{value!r} is not a length of time, such as 90s, 10m or 2h"
        )
    return amount


def size_bytes(value: str) -> int:
    """Read a size such as ``64Mi``; return bytes, more than 0."""
    found = re.fullmatch(r"([0-9]{1,12})(|Ki|Mi|Gi)", value)
    amount = int(found[1]) * _BYTES[found[2]] if found else 0
    if not amount:
        raise argparse.ArgumentTypeError(f"{value!r} is not a size, such as 64Mi or 1Gi")
    return amount


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
