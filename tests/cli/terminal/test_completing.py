"""What completes a command line: from our parsers, in the protocol of kubectl, and in a
real bash.
"""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import extender
from extender.cli.commands.completion import SCRIPTS
from extender.cli.main import main, new_parser
from extender.cli.terminal.completing import complete

COMMANDS = {
    "serve",
    "run",
    "cluster",
    "plan",
    "top",
    "record",
    "replay",
    "config",
    "simulate",
    "adapter-kit",
    "completion",
}


def words(*typed: str) -> set[str]:
    return {word for word, _ in candidates(*typed).words}


def candidates(*typed: str):
    return complete(new_parser(), typed, {("replay", "profile"): lambda _given: ["default", "ha"]})


def test_at_first_the_commands_with_their_help():
    assert words("") >= COMMANDS
    assert dict(candidates("").words)["replay"].startswith("a recording under another profile")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        pytest.param(("re",), {"record", "replay"}, id="a command that is begun"),
        pytest.param(
            ("--log-level", ""), {"debug", "info", "warning", "error"}, id="an option's choices"
        ),
        pytest.param(
            ("--log-level", "debug", "rep"), {"replay"}, id="after an option with its value"
        ),
        pytest.param(("--log-level=debug", "rep"), {"replay"}, id="... in one word"),
        pytest.param(("replay", "-o", "y"), {"yaml"}, id="of the command's own option"),
        pytest.param(
            ("replay", "--output=y"), {"--output=yaml"}, id="... in one word, which it completes"
        ),
        pytest.param(
            ("replay", "--output", "=", "y"), {"--output=yaml"}, id="... as bash breaks it"
        ),
        pytest.param(
            ("replay", "--output", "="),
            {f"--output={f}" for f in ("json", "table", "yaml")},
            id="... just begun",
        ),
        pytest.param(("replay", "--profile", "h"), {"ha"}, id="what is known of a value"),
        pytest.param(("replay", "FILE", "--fir"), {"--first"}, id="an option behind a file"),
        pytest.param(
            ("config", ""), {"check", "import-knative", "schema", "view"}, id="a command's actions"
        ),
        pytest.param(("completion", ""), set(SCRIPTS), id="a positional's choices"),
        pytest.param(("completion", "bash", ""), set(), id="one that comes once"),
        pytest.param(
            ("replay", "--nonsense", "--fir"), {"--first"}, id="behind an option that there is not"
        ),
        pytest.param(("nonsense", ""), COMMANDS, id="behind a command that there is not"),
    ],
)
def test_what_may_stand_there(typed: tuple[str, ...], expected: set[str]):
    found = words(*typed)
    assert found >= expected if expected == COMMANDS else found == expected


def test_an_option_that_was_given_is_not_offered_again_unless_it_may_be():
    assert "--check" not in words("replay", "--check", "--")
    assert "--set" in words("replay", "--set", "maxPods=1", "--")
    assert "--help" in words("replay", "--")


@pytest.mark.parametrize(
    ("typed", "files"),
    [
        pytest.param(("replay", ""), True, id="a file"),
        pytest.param(("replay", "a", ""), True, id="one more"),
        pytest.param(("replay", "--config", ""), True, id="an option's file"),
        pytest.param(("record", "--kubeconfig", ""), True, id="a kubeconfig"),
        pytest.param(("replay", "--first", ""), False, id="a number"),
        pytest.param(("record", "--context", ""), False, id="a name"),
        pytest.param(("re",), False, id="a command"),
    ],
)
def test_where_files_are_wanted_it_says_so(typed: tuple[str, ...], files: bool):
    assert candidates(*typed).files is files


def test_the_answer_is_a_line_each_and_the_directive(capsys: pytest.CaptureFixture[str]):
    assert main(["__complete", "comp"]) == 0
    assert (
        capsys.readouterr().out
        == "completion\tprint the completion of a shell, or of kubectl\n:4\n"
    )


@pytest.mark.parametrize(
    ("typed", "lines"),
    [
        pytest.param(
            ("plan", "--set", "m"),
            ["maxPods=", "minPods=", "minPodsPerVPod=", ":4"],
            id="fields that plan sets",
        ),
        pytest.param(
            ("replay", "--set", "m"),
            ["maxPods=", "minPods=", "minPodsPerVPod=", "movesPerPeriod=", ":4"],
            id="fields that replay sets",
        ),
        pytest.param(("plan", "--profile", "h"), ["ha", ":4"], id="a profile"),
        pytest.param(("simulate", "--profile", ""), [":0"], id="a file of rates, called profile"),
    ],
)
def test_each_command_offers_the_values_that_it_takes(
    typed: tuple[str, ...], lines: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main(["__complete", *typed]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_as_kubectls_completion_all_words_are_the_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl_complete-vreplica", "replay", "--out"])
    assert main() == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("--output")


@pytest.mark.parametrize(
    ("called", "usage"),
    [
        pytest.param("/usr/bin/kubectl-vreplica", "usage: kubectl vreplica", id="as a plug-in"),
        pytest.param("/usr/bin/vreplica", "usage: vreplica", id="by its name"),
        pytest.param("/src/extender/cli/main.py", "usage: vreplica", id="as a module"),
    ],
)
def test_it_calls_itself_as_it_was_called(
    called: str, usage: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "argv", [called, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(usage)


def test_an_error_names_the_program_as_it_was_called(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "argv", ["kubectl-vreplica", "replay", "no-such-file"])
    assert main() == 1
    assert capsys.readouterr().err.startswith("kubectl vreplica: ")


# -- in the shells ---------------------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with ``vreplica`` as it would be installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("vreplica", "kubectl-vreplica"):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m extender.cli.main "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


def run_shell(programs: Path, shell: str, script: str) -> str:
    found = subprocess.run(
        [shell, "-c", script],
        capture_output=True,
        text=True,
        cwd=programs.parent,
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(extender.__file__).parents[1]),
        },
        check=False,
        timeout=60,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


BASH = """
shopt -s expand_aliases
source <(vreplica completion bash)
COMP_WORDS=({words}) COMP_CWORD={index}
COMP_LINE="${{COMP_WORDS[*]}}" COMP_POINT=${{#COMP_LINE}}
_vreplica 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        pytest.param(("vreplica", "re"), "record\nreplay\n", id="a command"),
        pytest.param(
            ("kubectl-vreplica", "replay", "-o", "j"), "json\n", id="a value, of the plug-in"
        ),
        pytest.param(("vreplica", "replay", "--output", "=", "y"), "yaml\n", id="a value behind ="),
        pytest.param(
            ("vreplica", "replay", "--profile", ""),
            "default\nha\nknative\nknative-maxfillup\npack\nspread\n",
            id="names",
        ),
    ],
)
def test_bash_completes(programs: Path, typed: tuple[str, ...], expected: str):
    quoted = " ".join(f"'{word}'" for word in typed)
    assert run_shell(programs, "bash", BASH.format(words=quoted, index=len(typed) - 1)) == expected


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_script_is_valid_in_its_shell(programs: Path, shell: str):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    begin = "autoload -Uz compinit; compinit -u -D; " if shell == "zsh" else ""
    defined = run_shell(
        programs,
        shell,
        f"{begin}source <(vreplica completion {shell}); typeset -f _vreplica | head -1",
    )
    assert "_vreplica" in defined


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_fish_completes(programs: Path):
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    said = run_shell(
        programs, "fish", "vreplica completion fish | source; complete --do-complete 'vreplica re'"
    )
    assert [line.split("\t")[0] for line in said.splitlines()] == ["record", "replay"]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_kubectls_program_asks_the_plug_in(programs: Path):
    said = run_shell(
        programs,
        "bash",
        "vreplica completion kubectl > bin/kubectl_complete-vreplica && chmod +x "
        "bin/kubectl_complete-vreplica"
        " && kubectl_complete-vreplica replay --fir",
    )
    assert said.splitlines() == ["--first\tdecisions that differ to show (default: 20)", ":4"]
