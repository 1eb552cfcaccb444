"""The adapter's process: started, ended as the kubelet does it, and what it printed last. Or that
of somebody else, who has started it.
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

OUTPUT_BYTES_MAX: Final = 4096
OUTPUT_CHARS_MAX: Final = 300
"""Of what the process printed last, in a report."""


class Process(Protocol):
    """What a stage does with the adapter's process."""

    async def start(self, variables: Mapping[str, str]) -> None:
        """Start it with these variables in its environment. Raises OSError."""

    def terminate(self) -> None:
        """Send SIGTERM to it."""

    async def kill(self) -> None:
        """End it at once."""

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""

    def printed(self) -> str:
        """What it printed last, for the end of a sentence."""


class RunningAdapter:
    """An adapter that somebody else has started: it is left alone, and counts as running."""

    exit_status: Final = None

    async def start(self, variables: Mapping[str, str]) -> None:
        """Do nothing: it runs."""

    def terminate(self) -> None:
        """Do nothing: whoever has started it ends it."""

    async def kill(self) -> None:
        """Do nothing, as ``terminate``."""

    def printed(self) -> str:
        """Return "": its output is elsewhere."""
        return ""


class AdapterProcess:
    """``output``: the file to which it prints. It may be started again after ``kill``."""

    def __init__(self, command: Sequence[str], output: Path) -> None:
        self._command, self._output = command, output
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, variables: Mapping[str, str]) -> None:
        """Start the command with these variables in its environment. Raises OSError."""
        with self._output.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**os.environ, **variables},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def terminate(self) -> None:
        """Send SIGTERM to the process, as the kubelet does."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def kill(self) -> None:
        """End the process and its children at once."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    @property
    def exit_status(self) -> int | None:
        """Of the process; None while it runs."""
        return None if self._process is None else self._process.returncode

    def printed(self) -> str:
        """The last line that it printed, for the end of a sentence; "" if there is none."""
        try:
            with self._output.open("rb") as output:
                output.seek(max(0, output.seek(0, os.SEEK_END) - OUTPUT_BYTES_MAX))
                text = output.read().decode(errors="replace").strip()
        except OSError:
            return ""
        last = text.splitlines()[-1] if text else ""
        return f"; it printed: {last[:OUTPUT_CHARS_MAX]}" if last else ""
