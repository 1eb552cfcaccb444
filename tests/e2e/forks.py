"""``Forks``: our own programs as forks of one process that has imported them, instead of an
interpreter and its imports each.

Theory of operation. A scenario starts three of our programs, and of what that costs almost all is
the same imports again, a second or two of processor time each. So one child, run as a program,
imports them once and forks for every start::

    suite --{"program", "arguments", "log", "environment"}--> forks.py --fork--> session of its own,
                                                                |                log file, main(),
                                                                |                exit
    suite <--------{"pid"}, later {"pid", "code"}---------------'  (it is the parent, so it sees
                                                                   how they end)

The forks run the entry points of the installed scripts, with nothing imported meanwhile that was
started: no event loop, no thread, no open file. ``Fork`` has of ``subprocess.Popen`` what
``Process`` needs. When the suite dies, ``forks.py`` ends at the end of its input, and the suite's
reaper kills what it had started. Not for measurements of memory: forks share what was imported.
"""

import gc
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

PROGRAMS: Final = ("vreplica", "vreplica-webhook")
START_TIMEOUT_S: Final = 60.0
"""Until it has imported everything and forked."""
POLL_S: Final = 0.02


class Fork:
    """One started program, as ``subprocess.Popen`` shows it."""

    def __init__(self, owner: "Forks", pid: int) -> None:
        self.pid = pid
        self._owner = owner

    def poll(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        self._owner.read()
        return self._owner.codes.get(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(POLL_S)
        return code


class Forks:
    """The side of the suite; a context manager, started by its first use. One at a time uses it."""

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._pids: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        child, self._child = self._child, None
        if child is not None:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.close()
            child.wait()
            child.stdout.close()

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                cwd=Path(__file__).parents[2],
            )
            assert self._child.stdout is not None
            os.set_blocking(self._child.stdout.fileno(), False)
        return self._child

    def start(
        self, program: str, arguments: Sequence[str], log: Path, env: Mapping[str, str]
    ) -> Fork:
        """Forks ``program``, one of ``PROGRAMS``. Raises OSError where that cannot be done."""
        child = self._started()
        assert child.stdin is not None
        request = {
            "program": program,
            "arguments": list(arguments),
            "log": str(log),
            "environment": dict(env),
        }
        child.stdin.write(json.dumps(request).encode() + b"\n")
        child.stdin.flush()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._pids:
            self.read()
            if child.poll() is not None or time.monotonic() >= deadline:
                raise OSError(f"{program} was not forked, forks.py ended with {child.returncode}")
            time.sleep(POLL_S / 10)
        return Fork(self, self._pids.pop())

    def read(self) -> None:
        """Takes what has been told so far; never blocks."""
        if self._child is None or self._child.stdout is None:
            return
        while chunk := self._child.stdout.read():
            self._unread += chunk
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "code" in told:
                self.codes[told["pid"]] = told["code"]
            else:
                self.codes.pop(told["pid"], None)  # a number may come again
                self._pids.append(told["pid"])


def _main() -> None:
    import extender.service.app  # noqa: F401, PLC0415 - what `serve` imports when it is run
    from extender.cli.main import main  # noqa: PLC0415 - the suite's side does without
    from extender.lab.demo import commands  # noqa: F401, PLC0415 - what `cluster` imports when it is run
    from webhook import cli as webhook_cli  # noqa: PLC0415

    mains: dict[str, Callable[[], Any]] = {"vreplica": main, "vreplica-webhook": webhook_cli.main}
    gc.collect()
    gc.freeze()
    ended, wake = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    requests = os.fdopen(
        sys.stdin.fileno(), "rb", buffering=0
    )  # what is read ahead would not wake the selector
    waiting = selectors.DefaultSelector()
    waiting.register(requests, selectors.EVENT_READ)
    waiting.register(ended, selectors.EVENT_READ)
    while True:
        ready = {key.fd for key, _ in waiting.select()}
        if ended in ready:
            os.read(ended, 4096)
            _tell_ends()
        if requests.fileno() in ready:
            line = requests.readline()
            if not line:
                return
            request = json.loads(line)
            chosen = mains[request["program"]]
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                waiting.close()
                os.close(ended)
                os.close(wake)
                _become(request, chosen)
            _tell({"pid": pid})


def _tell_ends() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _tell({"pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _tell(what: Mapping[str, int]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _become(request: Mapping[str, Any], main: Callable[[], Any]) -> None:
    """Of a fork: the program, from here to its end."""
    code: Any = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with Path(request["log"]).open("ab") as log, Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.environ.update(request["environment"])
        sys.argv = [request["program"], *request["arguments"]]
        code = main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        logging.getLogger(__name__).exception("%s", request["program"])
    finally:
        if isinstance(code, str):
            sys.stderr.write(code + "\n")
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


if __name__ == "__main__":
    _main()
