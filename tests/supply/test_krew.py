"""The archive and manifest for krew say the same, in the form that krew takes."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from extender import __version__
from tests.supply.krew import LAUNCHER, archive, main, manifest

URI = "https://example.com/kubectl-vreplica.tar.gz"


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    wheel = tmp_path / f"vreplica_scheduler-{__version__}-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    return archive(wheel)


def test_the_program_that_the_manifest_names_is_in_the_archive_and_may_run(content: bytes):
    (platform,) = manifest(content, URI)["spec"]["platforms"]
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        members = {member.name: member.mode for member in tar}
    assert members.pop(platform["bin"]) == 0o755
    assert members == dict.fromkeys(
        ("LICENSE", "requirements.txt", f"vreplica_scheduler-{__version__}-py3-none-any.whl"), 0o644
    )


def test_the_manifest_has_the_archives_hash_and_the_version_with_a_v(content: bytes):
    plugin = manifest(content, URI)
    (platform,) = plugin["spec"]["platforms"]
    assert (platform["uri"], plugin["spec"]["version"]) == (URI, f"v{__version__}")
    assert platform["sha256"] == hashlib.sha256(content).hexdigest()
    # krew links it as kubectl-NAME, and kubectl calls that.
    assert f"kubectl-{plugin['metadata']['name']}" == LAUNCHER.name


def test_the_same_files_make_the_same_archive(content: bytes, tmp_path: Path):
    assert archive(next(tmp_path.glob("*.whl"))) == content


@pytest.mark.parametrize("uri", ["http://example.com/a.tar.gz", "https://example.com/a.whl"])
def test_a_url_that_krew_would_not_take_is_refused(
    uri: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.argv", ["krew", "--uri", uri])
    with pytest.raises(SystemExit):
        main()
    assert f"--uri {uri}: expected https://HOST/PATH.tar.gz" in capsys.readouterr().err
