"""Forked programs are the programs: they say the same, end the same, and are seen to end."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.embedded import EmbeddedBackend
from tests.e2e.forks import Forks
from tests.e2e.processes import VENV_BIN, Processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.stop_all(timeout_s=0.0)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        pytest.param(["--version"], 0, "vreplica", id="it ends well"),
        pytest.param(
            ["serve", "--config", "/nowhere"], 1, "/nowhere", id="it ends with an error of ours"
        ),
        pytest.param(["no-such-command"], 2, "usage:", id="wrong arguments"),
    ],
)
async def test_a_fork_ends_and_says_as_the_program_does(
    processes: Processes,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    says: str,
):
    forked = processes.start("forked", [VENV_BIN / "vreplica", *arguments])
    monkeypatch.setattr(Processes, "forks", None)
    opened = processes.start("opened", [VENV_BIN / "vreplica", *arguments])
    # The opened one imports the whole program, on a machine that runs other tests too.
    assert (await forked.wait(), await opened.wait(60.0)) == (code, code)
    assert says in forked.log_tail()
    assert [line[24:] if line[:2] == "20" else line for line in forked.log_tail().splitlines()] == [
        line[24:] if line[:2] == "20" else line for line in opened.log_tail().splitlines()
    ]


async def test_a_fork_is_a_process_group_of_its_own_that_signals_reach(embedded: EmbeddedBackend):
    await embedded.start()
    assert embedded.cluster is not None
    pid = embedded.cluster.pid
    assert os.getpgid(pid) == os.getsid(pid) == pid
    embedded.cluster.pause()
    embedded.cluster.resume()
    assert await embedded.cluster.kill() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_fork_that_is_asked_to_ends_well(embedded: EmbeddedBackend):
    await embedded.start()
    assert embedded.cluster is not None
    assert await embedded.cluster.terminate() == 0


def test_what_cannot_be_forked_is_an_error_and_no_hang(tmp_path: Path):
    with Forks() as forks, pytest.raises(OSError, match="was not forked"):
        forks.start("no-such-program", [], tmp_path / "log", {})
