"""``vreplica adapter-kit URL`` plays the rules against an adapter that runs already."""

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from extender.lab.adapter_kit.address import addresses_from
from extender.lab.adapter_kit.folder import SharedFolder
from extender.lab.adapter_kit.judging import Patience
from extender.lab.adapter_kit.process import AdapterProcess
from extender.lab.adapter_kit.rules import RULES
from extender.lab.adapter_kit.run import Outcome, Result
from extender.lab.adapter_kit.running import Running
from extender.model.errors import VReplicaError
from tests.lab.adapter_kit.playing import SHORT, not_kept, program, two_free_ports, worker
from tests.lab.adapter_kit.test_adapters import WRONG

NEED_THE_PROCESS = {"reads-file", "ends-well"}


class Side:
    """The kit's side: a folder and two ports, and the adapters that somebody starts for it."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.host, self.port = host, two_free_ports()
        self.announced: list[str] = []
        SharedFolder(folder)

    def kit(self, *names: str, wait_s: float = 5.0, patience: Patience = SHORT) -> Running:
        return Running(
            addresses=addresses_from(f"https://{self.host}:{self.port}"),
            announce=self.announced.append,
            folder=self.folder,
            wait_s=wait_s,
            names=names,
            patience=patience,
        )

    def rounds(self) -> int:
        """How many the kit has begun. Each rule is judged before the next one begins."""
        return int(json.loads((self.folder / "kit.json").read_text())["rounds"])

    async def check(self, *names: str, wait_s: float = 5.0, **options) -> dict[str, Result]:
        results = await self.kit(*names, wait_s=wait_s, **options).run(lambda _result: None)
        return {result.rule.name: result for result in results}

    @asynccontextmanager
    async def adapter(
        self, command: Sequence[str], files: Path | None = None, work_log: Path | None = None
    ) -> AsyncIterator[AdapterProcess]:
        process = AdapterProcess(command, self.folder.parent / "output")
        urls = [f"https://{self.host}:{port}" for port in (self.port, self.port + 1)]
        await process.start(
            {
                "VREPLICA_URLS": ",".join(urls),
                "VREPLICA_DIR": str(files or self.folder),
                "VREPLICA_WORK_LOG": str(work_log or self.folder / "work.jsonl"),
            }
        )
        try:
            yield process
        finally:
            await process.kill()


@pytest.fixture
def side(tmp_path: Path) -> Side:
    return Side(tmp_path / "kit")


@pytest.mark.timeout(120)
async def test_a_right_adapter_keeps_every_rule_that_needs_no_process(side):
    async with side.adapter(program("Adapter")) as process:
        results = await side.check(patience=Patience())
        assert process.exit_status is None
    assert set(not_kept(results.values())) == NEED_THE_PROCESS
    assert set(results) == {rule.name for rule in RULES if not rule.exclusive}
    for name in NEED_THE_PROCESS:
        assert results[name].outcome is Outcome.SKIPPED
        assert "vreplica adapter-kit COMMAND" in results[name].seen
    assert all(
        result.work_was_seen for name, result in results.items() if name not in NEED_THE_PROCESS
    )


@pytest.mark.parametrize(
    "name",
    [
        "NeverAcknowledges",
        "ServesInPrepare",
        "SaysDrainedTooEarly",
        "KeepsTheEpoch",
        "ActsOnOldGenerations",
        "IgnoresTheUid",
        "EndsAtConflict",
        "HammersWhenTooOften",
        "WaitsForASilentStream",
        "KeepsTheToken",
        "DropsIndexesThatStay",
    ],
)
async def test_what_is_wrong_is_found_by_the_rule_that_finds_it_with_a_command(side, name):
    rule, _ = WRONG[name]
    async with side.adapter(program(name)):
        results = await side.check(*dict.fromkeys(("serves", rule)))
    assert {each for each, result in results.items() if result.outcome is Outcome.BROKEN} == {rule}


async def test_a_rule_that_is_broken_says_nothing_against_those_after_it(side):
    async with side.adapter(program("GoesOnWhenAShareIsGone")):
        results = await side.check("stops", "grows", "is-quiet")
    assert set(not_kept(results.values())) == {"stops"}


async def test_the_worker_of_the_library_runs_on_and_is_checked_again(side):
    async with side.adapter(worker()):
        assert not_kept((await side.check("serves", "fences", "reconnects")).values()) == {}
        assert not_kept((await side.check("serves", "drains", "rereads-token")).values()) == {}


async def test_an_adapter_that_is_reached_by_a_name_finds_it_in_the_certificate(tmp_path):
    side = Side(tmp_path / "kit", host="localhost")
    async with side.adapter(program("Adapter")):
        assert not_kept((await side.check("serves", "fails-over")).values()) == {}


async def test_an_adapter_that_ends_breaks_the_rule_before_and_the_rest_is_skipped(side):
    async with side.adapter(program("EndsAtConflict")):
        results = await side.check("survives-conflict", "waits", "grows", wait_s=1.0)
    outcomes = [result.outcome for result in results.values()]
    assert outcomes == [Outcome.BROKEN, Outcome.SKIPPED, Outcome.SKIPPED]
    assert results["grows"].seen.endswith("not ready for another rule after survives-conflict")


async def test_an_adapter_that_comes_back_after_it_has_ended_plays_the_other_rules(side):
    playing = asyncio.create_task(side.check("survives-conflict", "serves", wait_s=20.0))
    async with side.adapter(program("EndsAtConflict")):
        # An adapter that is there again before the rule is judged can hide its end.
        while side.rounds() < 2:  # noqa: ASYNC110 (a file)
            await asyncio.sleep(0.02)
    async with side.adapter(program("Adapter")):
        results = await playing
    assert set(not_kept(results.values())) == {"survives-conflict"}


class TestAnAdapterWithCopiesOfTheFiles:
    async def test_which_cannot_see_the_new_token_is_not_judged_by_it(self, side, tmp_path):
        copies = tmp_path / "copies"
        shutil.copytree(side.folder, copies)
        log = tmp_path / "elsewhere.jsonl"
        async with side.adapter(program("Adapter"), files=copies, work_log=log):
            results = await side.check("serves", "rereads-token", "grows")
        assert set(not_kept(results.values())) == {"rereads-token"}
        assert results["rereads-token"].outcome is Outcome.SKIPPED
        assert "a copy" in results["rereads-token"].seen

    async def test_is_judged_by_it_if_its_work_log_shows_that_the_folder_is_shared(
        self, side, tmp_path
    ):
        async with side.adapter(program("KeepsTheToken")):
            results = await side.check("rereads-token", "serves")
        assert results["rereads-token"].outcome is Outcome.BROKEN
        assert results["serves"].outcome is Outcome.KEPT


class TestWhenNothingCanBePlayed:
    async def test_nobody_connects(self, side):
        with pytest.raises(VReplicaError) as told:
            await side.check(wait_s=0.2)
        assert f"no adapter connected to https://127.0.0.1:{side.port}" in str(told.value)
        assert f"VREPLICA_URLS=https://127.0.0.1:{side.port},https://" in str(told.value)
        assert f"the ca.crt and token of {side.folder}" in str(told.value)

    async def test_whoever_connects_has_another_token(self, side, tmp_path):
        files = tmp_path / "files"
        shutil.copytree(side.folder, files)
        (files / "token").write_text("of-another-kit")
        async with side.adapter(program("Adapter"), files=files):
            with pytest.raises(VReplicaError, match=f"without the token of {side.folder}/token"):
                await side.check(wait_s=2.0)

    async def test_somebody_else_listens_there(self, side):
        with socket.socket() as other:
            other.bind(("127.0.0.1", side.port + 1))
            other.listen()
            with pytest.raises(VReplicaError, match="cannot listen at https://"):
                await side.check()

    async def test_only_rules_are_asked_for_that_need_the_process(self, side):
        with pytest.raises(VReplicaError, match="reads-file, ends-well cannot be played"):
            await side.check("reads-file", "ends-well")


async def test_what_the_adapter_needs_is_announced_before_it_connects(side):
    with pytest.raises(VReplicaError):
        await side.check(wait_s=0.1)
    assert side.announced[1:4] == [
        f"  export VREPLICA_URLS=https://127.0.0.1:{side.port},https://127.0.0.1:{side.port + 1}",
        f"  export VREPLICA_DIR={side.folder}",
        f"  export VREPLICA_WORK_LOG={side.folder}/work.jsonl",
    ]
