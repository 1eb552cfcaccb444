"""What all commands share: how they end."""

import signal
import subprocess
import sys

import pytest

COMMAND = """
import asyncio, sys
from extender.cli.terminal.parsing import asyncio_run

async def command():
    print("up", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("ending", flush=True)
        if "stuck" in sys.argv:
            await asyncio.Event().wait()
    return 7

sys.exit(asyncio_run(command))
"""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_cancels_and_the_command_has_ended_well(signum):
    with _started() as process:
        process.send_signal(signum)
        assert _line(process) == "ending\n"
        assert process.wait(10) == 0


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_what_does_not_end(signum):
    with _started("stuck") as process:
        process.send_signal(signum)
        assert _line(process) == "ending\n"
        process.send_signal(signum)
        assert process.wait(10) != 0


def _started(*arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert _line(process) == "up\n"
    return process


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()
