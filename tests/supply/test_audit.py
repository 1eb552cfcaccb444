"""A vulnerability fails, and that nobody was asked is said; with pip-audit itself where it is
installed (``make audit``).
"""

import http.server
import importlib.util
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.supply import audit

WELL = {"name": "six", "version": "1.17.0", "vulns": []}
BAD = {
    "name": "rich",
    "version": "15.0.0",
    "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["15.0.1"]}],
}
UNKNOWN = {"name": "yarl", "skip_reason": "Dependency not found on PyPI"}
LOCK = f"six==1.17.0 \\\n    --hash=sha256:{'ab' * 32}\n"


def program(
    folder: Path, report: Any = None, words: str = "", status: int = 0, wait_s: float = 0
) -> list[str]:
    """Something that ends as pip-audit may."""
    file = folder / "program.py"
    file.write_text(
        "import json, sys, time\n"
        f"time.sleep({wait_s})\n"
        "out = [word for word in sys.argv if word.startswith('--output=')][0].partition('=')[2]\n"
        f"report = {report!r}\n"
        "if report is not None: open(out, 'w').write(json.dumps({'dependencies': report, 'fixes': "
        "[]}))\n"
        f"sys.stderr.write({words!r}); sys.exit({status})\n"
    )
    return [sys.executable, str(file)]


class TestOutcomes:
    @pytest.mark.parametrize(
        ("made", "status", "told"),
        [
            pytest.param(
                {"report": [WELL]}, 0, "asked about 1 packages, 0 vulnerabilities", id="well"
            ),
            pytest.param(
                {"report": [WELL, BAD], "status": 1},
                1,
                "VULNERABLE: rich 15.0.0: PYSEC-2026-1",
                id="bad",
            ),
            pytest.param(
                {"report": [WELL, UNKNOWN]},
                0,
                "left out: yarl: Dependency not found",
                id="one unknown",
            ),
            pytest.param(
                {"report": [UNKNOWN]}, 0, "LEFT OUT, nothing was audited", id="all unknown"
            ),
            pytest.param(
                {"words": "Could not connect to it", "status": 1}, 0, "LEFT OUT", id="no network"
            ),
            pytest.param(
                {"words": "error: no such option", "status": 2}, 2, "no such option", id="broken"
            ),
            pytest.param({"status": 1}, 2, "exit status 1", id="broken without a word"),
        ],
    )
    def test_are_told_and_have_a_status(self, made, status, told, tmp_path, capsys):
        assert audit.main(program(tmp_path, **made), [tmp_path / "lock.txt"]) == status
        said = capsys.readouterr()
        assert told in said.out + said.err

    def test_who_does_not_end_has_not_answered(self, tmp_path):
        with pytest.raises(audit.NoAnswer, match="no end within"):
            audit.ask(program(tmp_path, wait_s=30), "pypi", [tmp_path / "lock.txt"], timeout_s=0.5)


@contextmanager
def osv(vulnerable: str) -> Iterator[str]:
    """OSV's API, which knows of one vulnerability."""
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99"}]}]
    affected = [{"package": {"name": vulnerable, "ecosystem": "PyPI"}, "ranges": ranges}]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known = query["package"]["name"] == vulnerable
            vulns = (
                [{"id": "PYSEC-2026-1", "affected": affected, "details": "", "aliases": []}]
                if known
                else []
            )
            body = json.dumps({"vulns": vulns} if vulns else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/query"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.skipif(
    importlib.util.find_spec("pip_audit") is None, reason="pip-audit is not installed (make audit)"
)
class TestTheRealProgram:
    PROGRAM = (sys.executable, "-m", "pip_audit")

    @pytest.mark.parametrize(("vulnerable", "status"), [("six", 1), ("another", 0)])
    def test_finds_what_osv_knows(self, vulnerable, status, tmp_path, monkeypatch, capsys):
        lock = tmp_path / "lock.txt"
        lock.write_text(LOCK)
        with osv(vulnerable) as url:
            monkeypatch.setenv("OSV_URL", url)
            assert audit.main(self.PROGRAM, [lock], services=["osv"]) == status
        assert (
            "VULNERABLE: six 1.17.0: PYSEC-2026-1, fixed in 99" in capsys.readouterr().out
        ) is bool(status)

    def test_takes_locks_that_pin_two_versions_of_one_package(self, tmp_path, monkeypatch, capsys):
        for version in ("1.16.0", "1.17.0"):
            lock = LOCK.replace("1.17.0", version)
            (tmp_path / f"{version}.txt").write_text(lock)
        with osv("six") as url:
            monkeypatch.setenv("OSV_URL", url)
            locks = sorted(tmp_path.glob("*.txt"))
            assert audit.main(self.PROGRAM, locks, services=["osv"]) == 1
        told = capsys.readouterr().out
        assert "six 1.16.0: PYSEC-2026-1" in told
        assert "osv asked about 2 packages, 2 vulnerabilities" in told

    def test_says_that_nobody_answers(self, tmp_path, monkeypatch, capsys):
        lock = tmp_path / "lock.txt"
        lock.write_text(LOCK)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        monkeypatch.setenv("OSV_URL", f"http://127.0.0.1:{port}/v1/query")
        assert audit.main(self.PROGRAM, [lock], services=["osv"]) == 0
        assert "LEFT OUT, nothing was audited" in capsys.readouterr().out

    def test_does_not_take_a_lock_without_hashes(self, tmp_path, capsys):
        lock = tmp_path / "lock.txt"
        lock.write_text("six==1.17.0\n")
        assert audit.main(self.PROGRAM, [lock], services=["osv"]) == 2
