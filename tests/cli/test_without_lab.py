"""An installation without ``extender.lab``, as the container image is."""

import sys

import pytest

from extender.cli.main import NO_LAB, main
from extender.cli.terminal.exit_status import ERROR


@pytest.fixture(autouse=True)
def without_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith(("extender.lab", "extender.cli.simulation")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "extender.lab", None)


@pytest.mark.parametrize("words", ["run --once", "cluster", "simulate --seeds 1", "adapter-kit x"])
def test_a_command_that_needs_it_says_what_is_missing(words: str, capsys):
    assert main(words.split()) == ERROR
    assert capsys.readouterr().err == f"vreplica: {NO_LAB}\n"


def test_what_a_pod_runs_is_there(capsys):
    for words in ("serve --help", "config check --help"):
        with pytest.raises(SystemExit) as ended:
            main(words.split())
        assert ended.value.code == 0
    assert "--config" in capsys.readouterr().out


def test_any_other_module_that_is_missing_is_a_bug_with_its_traceback(monkeypatch):
    monkeypatch.setitem(sys.modules, "extender.service.app", None)
    with pytest.raises(ModuleNotFoundError, match="service"):
        main(["serve", "--config", "nowhere.yaml"])
