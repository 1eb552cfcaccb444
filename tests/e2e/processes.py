"""Processes of the suite: started, logged, watched, killed, and never left behind.

Theory of operation. Every program runs in a session of its own (so a signal for it reaches its
children, and Ctrl-C at the terminal does not), with stdout and stderr in one log file.
``Processes`` owns a set of them and a reaper (``reaper.py``) that kills them when this process dies
in whatever way. Readiness is polled through what the program serves, never slept for; a program
that ends while it is waited for fails the wait at once, with the end of its log.

``Processes`` itself never blocks: it starts, signals and polls. What waits is ``async``.
"""

import contextlib
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

import aiohttp

from tests.e2e.forks import PROGRAMS, Fork, Forks
from tests.e2e.waiting import NotYet, eventually

STOP_TIMEOUT_S: Final = 15.0
LOG_TAIL_BYTES_MAX: Final = 16 * 1024
LOG_LINE_CHARS_MAX: Final = 400
PORTS: Final = range(20_000, 30_000)
PORT_TRIES_MAX: Final = 1000
_chance: Final = random.SystemRandom()
_handed_out: Final[set[int]] = set()
VENV_BIN: Final = Path(sys.executable).parent


class ProcessFailed(Exception):
    """A program ended although it was needed; the text has its exit code and the end of its log."""


def own_ports() -> range:
    """The ports of this test process: workers that run side by side share none."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return PORTS[worker % workers :: workers]


def free_port() -> int:
    """A TCP port of loopback that was free a moment ago and was not handed out before.

    Below the ports that systems give to outgoing connections, so that none of those takes it before
    its program listens, or between two starts of one.
    """
    ports = own_ports()
    for _ in range(PORT_TRIES_MAX):
        port = _chance.choice(ports)
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                listener.bind(("127.0.0.1", port))
                if port not in _handed_out:
                    _handed_out.add(port)
                    return port
    raise OSError(f"no free port in {PORTS} after {PORT_TRIES_MAX} tries")


@dataclass(frozen=True, slots=True)
class Probe:
    """A readiness URL: ready when it answers 200. ``tls`` None for http."""

    url: str
    tls: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    async def check(self) -> bool:
        """True when ready; raises NotYet with what it saw."""
        timeout = aiohttp.ClientTimeout(total=2.0)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(self.url, ssl=self.tls or True, headers=dict(self.headers)) as reply,
            ):
                if reply.status == 200:
                    return True
                raise NotYet(f"{self.url} answers {reply.status}: {(await reply.text())[-500:]}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NotYet(f"{self.url}: {error!r}") from error


class Process:
    """One running program. Made by ``Processes.start``."""

    def __init__(
        self, name: str, popen: "subprocess.Popen[bytes] | Fork", log: Path, owner: "Processes"
    ) -> None:
        self.name = name
        self.log = log
        self._popen = popen
        self._owner = owner

    @property
    def pid(self) -> int:
        """Process id, also its process group's."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        return self._popen.poll()

    def log_tail(self) -> str:
        """End of its log, at most 16 KiB."""
        try:
            data = self.log.read_bytes()
        except FileNotFoundError:
            return ""
        return data[-LOG_TAIL_BYTES_MAX:].decode(errors="replace")

    async def ready(self, probe: Probe, timeout_s: float = 30.0) -> None:
        """Returns when ``probe`` answers 200. Raises ProcessFailed when it ends or is not ready in
        time.
        """

        async def look() -> bool:
            if self.returncode is not None:
                raise ProcessFailed(f"{self.name} ended with {self.returncode}:\n{self.log_tail()}")
            return await probe.check()

        try:
            await eventually(look, timeout_s, f"{self.name} ready")
        except TimeoutError as error:
            raise ProcessFailed(f"{error}\n{self.log_tail()}") from error

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to it and its children; nothing when it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def pause(self) -> None:
        """SIGSTOP: as a long garbage collection or a frozen machine."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    async def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Its exit code. Raises TimeoutError."""

        async def ended() -> bool:
            if self.returncode is None:
                raise NotYet("still running")
            return True

        await eventually(ended, timeout_s, f"{self.name} ends", interval_s=0.02)
        self._owner.forget(self)
        code = self.returncode
        assert code is not None
        return code

    async def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM and wait; SIGKILL after ``timeout_s``. Returns the exit code, so a test can tell
        which it was.
        """
        self.signal(signal.SIGTERM)
        self.resume()
        try:
            return await self.wait(timeout_s)
        except TimeoutError:
            return await self.kill()

    async def kill(self) -> int:
        """SIGKILL and wait: what a lost machine or the OOM killer does."""
        self.signal(signal.SIGKILL)
        return await self.wait()

    def peak_memory_bytes(self) -> int:
        """Most resident memory so far (VmHWM); 0 where the system does not tell, or after
        its end.
        """
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0


class Processes:
    """A set of programs that end together; logs as ``log_dir/NAME.log`` (``NAME.2.log`` for its
    second start).
    """

    forks: ClassVar[Forks | None] = None
    """Where the programs that it knows come from, if anywhere: conftest.py sets it for the suite.
    """

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        log_dir.mkdir(parents=True, exist_ok=True)
        self._running: list[Process] = []
        self._starts: dict[str, int] = {}
        self._reaper: subprocess.Popen[str] | None = None

    def start(
        self, name: str, args: Sequence[str | Path], *, env: Mapping[str, str] | None = None
    ) -> Process:
        """Starts a program; ``env`` is added to ours."""
        self._starts[name] = self._starts.get(name, 0) + 1
        suffix = "" if self._starts[name] == 1 else f".{self._starts[name]}"
        log = self.log_dir / f"{name}{suffix}.log"
        popen = self._forked(args, log, env or {}) or self._opened(args, log, env or {})
        process = Process(name, popen, log, self)
        self._running.append(process)
        self._tell_reaper(f"+{process.pid}")
        return process

    def _forked(self, args: Sequence[str | Path], log: Path, env: Mapping[str, str]) -> Fork | None:
        program = Path(args[0])
        if self.forks is None or program.parent != VENV_BIN or program.name not in PROGRAMS:
            return None
        return self.forks.start(program.name, [str(arg) for arg in args[1:]], log, env)

    def _opened(
        self, args: Sequence[str | Path], log: Path, env: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        with log.open("ab") as out:
            return subprocess.Popen(
                [str(arg) for arg in args],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
                start_new_session=True,
            )

    @property
    def running(self) -> tuple[Process, ...]:
        """Those not yet known to have ended."""
        return tuple(self._running)

    def forget(self, process: Process) -> None:
        """Called for a process that has ended: its id may be another's soon."""
        if process in self._running:
            self._running.remove(process)
            self._tell_reaper(f"-{process.pid}")

    def stop_all(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM from the last started to the first, all in ``timeout_s`` together, then SIGKILL.
        Blocks; never raises.
        """
        deadline = time.monotonic() + timeout_s
        for process in reversed(self.running):
            process.signal(signal.SIGTERM)
            process.resume()
        for process in reversed(self.running):
            popen = process._popen
            try:
                popen.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.signal(signal.SIGKILL)
                popen.wait()
            self.forget(process)
        self._end_reaper()

    def log_tails(self) -> str:
        """Where the logs are, and the end of each, for a failure's report."""
        parts = [f"logs are in {self.log_dir}"]
        for log in sorted(self.log_dir.glob("*.log")):
            lines = log.read_bytes()[-LOG_TAIL_BYTES_MAX:].decode(errors="replace").splitlines()
            parts.append(f"--- {log.name}")
            parts += [line[:LOG_LINE_CHARS_MAX] for line in lines[-15:]]
        return "\n".join(parts)

    def _tell_reaper(self, line: str) -> None:
        if self._reaper is None:
            self._reaper = subprocess.Popen(
                [sys.executable, "-S", "-E", str(Path(__file__).with_name("reaper.py"))],
                stdin=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        assert self._reaper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._reaper.stdin.write(line + "\n")
            self._reaper.stdin.flush()

    def _end_reaper(self) -> None:
        if self._reaper is not None:
            with contextlib.suppress(BrokenPipeError):
                self._reaper.communicate(timeout=STOP_TIMEOUT_S)
            self._reaper = None


async def start_service(
    processes: Processes,
    config: Path,
    *,
    url: str,
    extra: Sequence[str] = (),
    timeout_s: float = 30.0,
) -> Process:
    """``vreplica serve --config CONFIG``, ready (caches synced) at ``url``/readyz. Raises
    ProcessFailed.
    """
    process = processes.start(
        "service", [VENV_BIN / "vreplica", "serve", "--config", config, *extra]
    )
    await process.ready(Probe(f"{url}/readyz"), timeout_s)
    return process
