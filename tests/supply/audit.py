"""``make audit``: known vulnerabilities of all that is locked, by pip-audit, or by name why there
is no answer.

Exit status 0: asked and none found, or nobody answers (which is said). 1: a vulnerability. 2:
pip-audit does not work. No network is no failure: what was not asked is told, package by package
where only some are unknown.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.supply.locks import REQUIREMENTS

SERVICES: Final = ("pypi", "osv")
"""In the order in which they are asked; the first one that knows packages is believed."""
TIMEOUT_S: Final = 240.0
"""For all of it."""
_ANSWER_TIMEOUT_S: Final = 15
_NOBODY: Final = (
    "could not connect",
    "connection",
    "timed out",
    "timeout",
    "resolve",
    "redirecting",
)
"""How a lack of network is told."""


@dataclass(slots=True)
class Answer:
    """What a service has said; a package that several locks have is told once."""

    asked: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)


class NoAnswer(Exception):
    """Nobody answers; the text says how."""


class Broken(Exception):
    """pip-audit ended without a report, and not for want of network."""


def read_report(answer: Answer, report: Any) -> None:
    """Add a report of ``pip-audit --format json``."""
    for each in report["dependencies"]:
        if "skip_reason" in each:
            answer.skipped.add(f"{each['name']}: {each['skip_reason']}")
            continue
        package = f"{each['name']} {each['version']}"
        answer.asked.add(package)
        for vulnerability in each["vulns"]:
            fixed = ", ".join(vulnerability["fix_versions"]) or "no version"
            answer.found.add(f"{package}: {vulnerability['id']}, fixed in {fixed}")


def ask(
    program: Sequence[str], service: str, locks: Sequence[Path], timeout_s: float = TIMEOUT_S
) -> Answer:
    """What ``service`` knows of ``locks``. Raises NoAnswer, Broken.

    Each lock is an environment of its own: two of them may pin two versions of one package, which
    pip-audit refuses within one run.
    """
    answer = Answer()
    deadline = time.monotonic() + timeout_s
    with tempfile.TemporaryDirectory(prefix="vreplica-audit-") as folder:
        for lock in locks:
            report = Path(folder) / f"{lock.stem}.json"
            arguments = _arguments(service, lock, report, Path(folder) / "cache")
            try:
                done = subprocess.run(
                    [*program, *arguments],
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=max(deadline - time.monotonic(), 0),
                )
            except subprocess.TimeoutExpired:
                raise NoAnswer(f"no end within {timeout_s:.0f} s") from None
            if not report.exists() or not (text := report.read_text()):
                raise _no_report(done, lock)
            read_report(answer, json.loads(text))
    if not answer.asked:
        raise NoAnswer(f"knows none of {len(answer.skipped)} packages ({min(answer.skipped)})")
    return answer


def _arguments(service: str, lock: Path, report: Path, cache: Path) -> list[str]:
    arguments = [
        "--require-hashes",
        "--disable-pip",
        "--progress-spinner=off",
        "--format=json",
        f"--output={report}",
        f"--vulnerability-service={service}",
        f"--cache-dir={cache}",
        f"--timeout={_ANSWER_TIMEOUT_S}",
        f"--requirement={lock}",
    ]
    if service == "osv" and os.environ.get("OSV_URL"):
        arguments.append(f"--osv-url={os.environ['OSV_URL']}")
    return arguments


def _no_report(done: subprocess.CompletedProcess[str], lock: Path) -> NoAnswer | Broken:
    words = (done.stderr or done.stdout).strip()
    last = words.splitlines()[-1] if words else f"exit status {done.returncode}"
    if any(word in words.lower() for word in _NOBODY):
        return NoAnswer(last)
    return Broken(f"{lock.name}: {last}")


def main(program: Sequence[str], locks: Sequence[Path], services: Sequence[str] = SERVICES) -> int:
    """Ask, tell, and return the exit status."""
    refused = []
    for service in services:
        try:
            answer = ask(program, service, locks)
        except NoAnswer as error:
            refused.append(f"{service}: {error}")
            continue
        except Broken as error:
            sys.stderr.write(f"pip-audit: {error}\n")
            return 2
        for line in sorted(answer.skipped):
            sys.stdout.write(f"pip-audit: left out: {line}\n")
        for line in sorted(answer.found):
            sys.stdout.write(f"pip-audit: VULNERABLE: {line}\n")
        counts = f"{len(answer.asked)} packages, {len(answer.found)} vulnerabilities"
        sys.stdout.write(f"pip-audit: {service} asked about {counts}\n")
        return 1 if answer.found else 0
    why = "; ".join(refused)
    sys.stdout.write(f"pip-audit: LEFT OUT, nothing was audited: no index answers ({why})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main([sys.executable, "-m", "pip_audit"], sorted(REQUIREMENTS.glob("*.txt"))))
