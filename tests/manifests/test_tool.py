"""Where helm comes from."""

from pathlib import Path

import pytest

from tests.manifests import tool


def test_without_go_and_without_a_named_one_it_says_so_and_ends_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv(tool.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tool, "helm", tool.helm.__wrapped__)
    assert tool.main() == 0
    assert "Go is not installed" in capsys.readouterr().out


def test_a_named_one_is_taken_and_one_that_is_no_program_is_an_error_not_a_skip(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    program = tmp_path / "helm"
    monkeypatch.setenv(tool.VARIABLE, str(program))
    with pytest.raises(FileNotFoundError, match="is no program"):
        tool.helm.__wrapped__()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert tool.helm.__wrapped__() == program


def test_another_go_sum_is_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    before = tool.folder()
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_bytes((tool.MODULE / name).read_bytes())
    monkeypatch.setattr(tool, "MODULE", tmp_path)
    assert tool.folder() == before
    with (tmp_path / "go.sum").open("a") as out:
        out.write("\n")
    assert tool.folder() != before


def test_the_version_is_the_one_of_the_module():
    assert f"helm.sh/helm/v4 {tool.VERSION}" in (tool.MODULE / "go.mod").read_text()
