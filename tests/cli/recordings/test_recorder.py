"""``Recorder``: what a source tells, in files that can each be played."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from extender.cli.recordings.recorder import Position, Recorder, position_of
from extender.cli.recordings.recording_file import RecordingFile, read_lines
from extender.cli.terminal.replica import ReplicaError
from extender.model.errors import InvalidObject
from extender.service.http.recording_buffer import Lost, as_lines
from extender.whatif.recording.entries import Entry, Expire, Header, Line, Synced


class Ended(Exception):
    """The script is at its end."""


class Script:
    """A source that tells entries up to a number at each question, raises what stands there, and
    then ends.
    """

    def __init__(self, *steps: int | Exception, journal: str = "r-1") -> None:
        self.steps = list(steps)
        self.journal = journal
        self.at = 0
        self.snapshots = 0
        self.grows_by = 0
        """Entries that come while a snapshot is fetched."""

    async def snapshot(self) -> AsyncIterator[bytes]:
        self.snapshots += 1
        yield as_lines([Header("replica", 1.0, journal=self.journal, identity="r", leader="r")])
        self.at += self.grows_by
        yield as_lines([Synced(self.at)])

    async def after(self, position: Position, wait_s: float) -> tuple[list[bytes], Position]:
        assert position.journal == self.journal
        if wait_s > 0:
            await asyncio.sleep(0)
            if not self.steps:
                raise Ended
            step = self.steps.pop(0)
            if isinstance(step, Exception):
                raise step
            self.at = max(self.at, step)
        entries = [
            Entry(1.0, seq, Expire(float(seq))) for seq in range(position.seq + 1, self.at + 1)
        ]
        return [as_lines(entries)], Position(self.journal, self.at)


async def record(script: Script, file: RecordingFile, position: Position | None = None) -> Recorder:
    recorder = Recorder(script, file, position=position)
    with pytest.raises(Ended):
        await recorder.run()
    return recorder


def lines_of(path: Path) -> list[Line | None]:
    return [line for _, line in read_lines(path)]


def found(path: Path) -> bool:
    return path.exists()


def numbers(path: Path) -> list[int]:
    return [line.seq for line in lines_of(path) if isinstance(line, Entry)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r.jsonl"


async def test_a_file_begins_with_a_snapshot_and_goes_on_in_order(path: Path):
    recorder = await record(Script(2, 2, 5), RecordingFile(path))
    header, end, *entries = lines_of(path)
    assert isinstance(header, Header)
    assert end == Synced(0)
    assert len(entries) == 5
    assert numbers(path) == [1, 2, 3, 4, 5]
    assert (recorder.position, recorder.gaps) == (Position("r-1", 5), 0)


async def test_what_is_lost_is_a_gap_and_a_new_snapshot(path: Path):
    recorder = await record(Script(2, Lost("too slow"), 2, 3), RecordingFile(path))
    kinds = [type(line).__name__ for line in lines_of(path)]
    assert kinds == ["Header", "Synced", "Entry", "Entry", "Gap", "Header", "Synced", "Entry"]
    assert recorder.gaps == 1


@pytest.mark.looptime
async def test_a_replica_that_does_not_answer_is_asked_again_later_and_nothing_is_lost(path: Path):
    loop = asyncio.get_running_loop()
    began = loop.time()
    await record(
        Script(1, ReplicaError("no answer"), ReplicaError("no answer"), 3), RecordingFile(path)
    )
    assert numbers(path) == [1, 2, 3]
    assert loop.time() - began == 3.0, "one second, then two"


async def test_where_there_is_no_replica_it_says_so_at_once(path: Path):
    class Nobody(Script):
        def snapshot(self) -> AsyncIterator[bytes]:
            raise ReplicaError("nobody is there")

    with pytest.raises(ReplicaError, match="nobody is there"):
        await Recorder(Nobody(), RecordingFile(path)).run()
    assert not found(path)


async def test_a_full_file_becomes_the_one_before_and_nothing_falls_between(path: Path):
    script = Script(*range(3, 40, 3))
    script.grows_by = 2
    await record(script, RecordingFile(path, bytes_max=400, files_max=10))
    older = sorted(path.parent.glob("r.jsonl.*"), key=lambda file: -int(file.suffix[1:]))
    files = [*older, path]
    numbered: list[int] = []
    for file in files:
        assert isinstance(lines_of(file)[0], Header), "each can be played alone"
        numbered += numbers(file)
    assert len(files) > 3
    assert numbered == list(range(numbered[0], script.at + 1))


async def test_the_oldest_file_goes(path: Path):
    await record(Script(*range(3, 60, 3)), RecordingFile(path, bytes_max=200, files_max=3))
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "r.jsonl",
        "r.jsonl.1",
        "r.jsonl.2",
    ]


async def test_a_recording_is_gone_on_with_where_it_ends(path: Path):
    await record(Script(2), RecordingFile(path))
    with path.open("ab") as killed:
        killed.write(b'{"at": 1.0, "seq": 3, "exp')  # killed within a line
    assert lines_of(path)[-1] is None
    file = RecordingFile(path)
    position = position_of(file)
    assert position == Position("r-1", 2)
    file.go_on()
    script = Script(4)
    await record(script, file, position)
    assert numbers(path) == [1, 2, 3, 4]
    assert script.snapshots == 0


async def test_where_it_cannot_be_gone_on_with_a_gap_is_told(path: Path):
    await record(Script(2), RecordingFile(path))
    file = RecordingFile(path)
    file.go_on()
    await record(Script(1, journal="r-2"), file, None)
    assert [type(line).__name__ for line in lines_of(path)][-4:] == [
        "Gap",
        "Header",
        "Synced",
        "Entry",
    ]


@pytest.mark.looptime
async def test_a_snapshot_that_breaks_off_is_fetched_again(path: Path):
    class Broken(Script):
        async def snapshot(self) -> AsyncIterator[bytes]:
            if self.snapshots == 1:
                self.snapshots += 1
                yield as_lines([Header("replica", 1.0, journal=self.journal)])
                raise ReplicaError("broken off")
            async for lines in super().snapshot():
                yield lines

    recorder = Recorder(Broken(1, Lost("gone"), 2), RecordingFile(path))
    task = asyncio.create_task(recorder.run())
    with pytest.raises(Ended):
        await task
    kinds = [type(line).__name__ for line in lines_of(path)]
    assert kinds == ["Header", "Synced", "Entry", "Gap", "Header", "Header", "Synced", "Entry"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"hello\n", "line 1: is no JSON", id="no JSON"),
        pytest.param(b"{}\n", "line 1: at: must be seconds", id="no recording"),
        pytest.param(
            b'{"gap":{}}\n' + b"[" * 5_000_000 + b"\n",
            "line 2: is longer than",
            id="a line without end",
        ),
    ],
)
def test_what_is_no_recording_is_told_with_its_line(path: Path, content: bytes, message: str):
    path.write_bytes(content)
    with pytest.raises(InvalidObject, match=message):
        lines_of(path)


def test_an_empty_file_has_no_lines(path: Path):
    path.touch()
    assert lines_of(path) == []
