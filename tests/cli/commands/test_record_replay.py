"""``vreplica record`` and ``replay`` as a person runs them."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.main import main
from tests.support.service import a_world, until

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> tuple[int, str, str]:
        status = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


async def record_command(*arguments: object) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "extender.cli.main",
        "record",
        *(str(argument) for argument in arguments),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, err.decode()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two vpods are placed while a replica is recorded."""
    path = tmp_path_factory.mktemp("recorded") / "r.jsonl"
    asyncio.run(_record(path))
    return path


async def _record(path: Path) -> None:
    world = await a_world(0, 1)
    async with world.serving(serve=True) as service:
        recording = asyncio.create_task(
            record_command("--server", service.server.url, "-o", path, "--for", "6s", "--keep", "1")
        )
        async with asyncio.timeout(40):
            await until(lambda: _has_snapshot(path), timeout_s=30)
            await world.vpod("a", 3)
            await world.vpod("b", 2)
            status, err = await recording
    assert status == 0
    assert f"{path}: " in err


def _has_snapshot(path: Path) -> bool:
    return path.exists() and "synced" in path.read_text()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_what_was_recorded_is_decided_again_as_it_was(recording: Path, run: Run):
    status, out, _ = run("replay", recording, "--check", "-o", "json")
    decisions = json.loads(out)["decisions"]
    assert status == 0
    assert decisions["compared"] == decisions["same"] >= 2


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_otherwise_it_says_what_differs_and_with_check_by_its_exit_status(
    recording: Path, run: Run
):
    status, out, _ = run("replay", recording, "--profile", "pack", "--check", "-o", "json")
    assert status == 3
    report = json.loads(out)
    assert report["changes"] == {"profile": "pack"}
    assert report["decisions"]["first"][0]["replayed"]["placements"] == {"dispatcher-0": 3}
    assert run("replay", recording, "--profile", "pack")[0] == 0


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_json_and_yaml_say_the_same_and_the_table_the_most_of_it(recording: Path, run: Run):
    arguments = ("replay", recording, "--set", "slotsPerPod=1")
    as_json: Any = json.loads(run(*arguments, "-o", "json")[1])
    assert yaml.safe_load(run(*arguments, "-o", "yaml")[1]) == as_json
    table = run(*arguments)[1]
    assert "WITH CHANGES" in table
    assert "tenant/a" in table


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_an_existing_file_is_not_written_over(recording: Path, run: Run):
    before = recording.read_bytes()
    status, _, err = run("record", "--server", "http://127.0.0.1:1", "-o", recording)
    assert status == 1
    assert "exists: --resume goes on with it, --force begins anew" in err
    assert recording.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("no-such-file",), "No such file", id="no file"),
        pytest.param(("EMPTY",), "is empty", id="an empty one"),
        pytest.param(("OTHER",), "line 1: is no JSON", id="another one"),
        pytest.param(("HEADLESS",), "does not begin with a header", id="the middle of one"),
        pytest.param(
            ("EMPTY", "--profile", "best"),
            "--profile: 'best' is not known (known: default",
            id="profile",
        ),
    ],
)
def test_a_wrong_file_or_an_unknown_profile_is_one_line(
    tmp_path: Path, run: Run, arguments: tuple[str, ...], message: str
):
    for name, content in {
        "EMPTY": "",
        "OTHER": "kind: Pod\n",
        "HEADLESS": '{"synced": {"seq": 1}}\n',
    }.items():
        (tmp_path / name).write_text(content)
    known = [tmp_path / word if word.isupper() else word for word in arguments]
    status, out, err = run("replay", *known)
    assert (status, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param("slots=3", "'slots' cannot be set (can be: cooldown", id="field"),
        pytest.param("slotsPerPod=0", "slotsPerPod is at least 1, not 0", id="value"),
        pytest.param("slotsPerPod", "is not FIELD=NUMBER, such as slotsPerPod=22", id="no value"),
    ],
)
def test_a_setting_that_cannot_be_is_a_wrong_option(
    capsys: pytest.CaptureFixture[str], given: str, message: str
):
    with pytest.raises(SystemExit) as ended:
        main(["replay", "no-such-file", "--set", given])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


async def test_without_a_replica_there_it_says_so_at_once(tmp_path: Path):
    status, err = await record_command("--server", "http://127.0.0.1:1", "-o", tmp_path / "r")
    assert status == 1
    assert "http://127.0.0.1:1 cannot be asked" in err
    assert "Traceback" not in err
