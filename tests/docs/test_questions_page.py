"""Every command of docs/questions.md is run, and what the page shows of an answer is what it
prints.

``python -m tests.docs.test_questions_page`` writes the answers anew.
"""

import asyncio
import io
import json
import os
import re
import shlex
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import yaml

from extender.cli.main import main
from extender.kube.api import ADAPTERPOOLS, NAMESPACES, NODES, STATEFULSETS, VPODS, Resource
from extender.lab.demo.local import LocalSystem
from extender.lab.embedded import node_object
from tests.support.service import until

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "questions.md"
SERVER = "http://127.0.0.1:10261"
COLUMNS = "120"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
KINDS: dict[str, Resource] = {
    one.kind: one for one in (NAMESPACES, ADAPTERPOOLS, STATEFULSETS, VPODS)
}


def commands() -> list[str]:
    return [
        line[2:]
        for block in BLOCK.findall(PAGE.read_text())
        for line in block.splitlines()
        if line[:2] == "$ "
    ]


def of_files() -> list[str]:
    return [command for command in commands() if " -f " in command]


def run(command: str) -> tuple[int, str]:
    """Run a ``vreplica`` command as on a terminal of ``COLUMNS``: exit status, standard output."""
    out = io.StringIO()
    before = os.environ.get("COLUMNS"), Path.cwd()
    os.environ["COLUMNS"] = COLUMNS
    os.chdir(ROOT)
    try:
        with redirect_stdout(out), redirect_stderr(io.StringIO()):
            status = main(shlex.split(command)[1:])
    finally:
        os.chdir(before[1])
        del os.environ["COLUMNS"]
        if before[0] is not None:
            os.environ["COLUMNS"] = before[0]
    return status, "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def rewritten(page: str) -> str:
    """The page, with the answers of the blocks that ask files one thing, and print tables."""

    def answered(found: re.Match[str]) -> str:
        asked = [line for line in found[1].splitlines() if line[:2] == "$ "]
        if len(asked) != 1 or " -f " not in asked[0]:
            return found[0]
        return f"```console\n{asked[0]}\n{run(asked[0][2:])[1]}\n```"

    return BLOCK.sub(answered, page)


def test_the_page_shows_what_is_printed():
    assert PAGE.read_text() == rewritten(PAGE.read_text()), (
        "python -m tests.docs.test_questions_page writes it anew"
    )


@pytest.mark.parametrize("command", of_files())
def test_a_command_about_files_answers(command):
    status, out = run(command)
    assert status == 0
    assert out


@pytest.mark.timeout(90)
async def test_the_commands_about_a_cluster_answer(tmp_path, monkeypatch):
    async with LocalSystem(seed=1, directory=tmp_path) as running:
        await _apply_examples(running)
        monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig))
        for command in commands():
            asked = command.replace(SERVER, running.running.server.url)
            if " -f " in command:
                continue
            if command.startswith("curl "):
                await _curl(asked)
            else:
                status, out = await asyncio.to_thread(run, asked)
                assert (status, bool(out)) == (0, True), command


async def _apply_examples(running: LocalSystem) -> None:
    api = running.local.cluster
    for index in range(3):
        await api.create(NODES, "", node_object(f"node-{index}", f"zone-{'abc'[index]}"))
    for name in ("pool.yaml", "vpods.yaml"):
        for obj in yaml.safe_load_all((ROOT / "manifests" / "examples" / name).read_text()):
            if obj["kind"] in KINDS:
                await api.create(KINDS[obj["kind"]], obj["metadata"].get("namespace", ""), obj)

    async def placed() -> bool:
        running.local.check()
        vpods = (await api.list_page(VPODS)).items
        return all(
            vpod.get("status", {}).get("scheduledVReplicas") == vpod["spec"]["vreplicas"]
            for vpod in vpods
        )

    await until(placed, timeout_s=40)


async def _curl(command: str) -> None:
    if shutil.which("curl") is None:
        return
    process = await asyncio.create_subprocess_exec(
        *shlex.split(command), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    answer = json.loads(out)
    assert "error" not in answer, answer


def test_the_page_names_every_option_and_exit_status(capsys):
    text = PAGE.read_text()
    for command in ("plan", "explain"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        for option in re.findall(r"--[a-z]+[a-z-]*", capsys.readouterr().out):
            if option not in {
                "--help",
                "--filename",
                "--namespace",
                "--output",
                "--client-certificate",
                "--client-key",
                "--certificate-authority",
            }:
                assert f"{option}" in text, option


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
