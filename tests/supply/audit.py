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
    """What a service has said."""

    asked: int = 0
    found: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


class NoAnswer(Exception):
    """Nobody answers; the text says how."""


class Broken(Exception):
    """pip-audit ended without a report, and not for want of network."""


def answer_of(report: Any) -> Answer:
    """A report of ``pip-audit --format json``."""
    answer = Answer()
    for each in report["dependencies"]:
        if "skip_reason" in each:
            answer.skipped.append(f"{each['name']}: {each['skip_reason']}")
            continue
        answer.asked += 1
        for vulnerability in each["vulns"]:
            fixed = ", ".join(vulnerability["fix_versions"]) or "no version"
            answer.found.append(
                f"{each['name']} {each['version']}: {vulnerability['id']}, fixed in {fixed}"
            )
    return answer


def ask(
    program: Sequence[str], service: str, locks: Sequence[Path], timeout_s: float = TIMEOUT_S
) -> Answer:
    """What ``service`` knows of ``locks``. Raises NoAnswer, Broken."""
    with tempfile.TemporaryDirectory(prefix="vreplica-audit-") as folder:
        report = Path(folder) / "report.json"
        command = [
            *program,
            "--require-hashes",
            "--disable-pip",
            "--progress-spinner=off",
            "--format=json",
        ]
        command += [
            f"--output={report}",
            f"--vulnerability-service={service}",
            f"--cache-dir={folder}/cache",
        ]
        command += [f"--timeout={_ANSWER_TIMEOUT_S}", *(f"--requirement={lock}" for lock in locks)]
        if service == "osv" and os.environ.get("OSV_URL"):
            command.append(f"--osv-url={os.environ['OSV_URL']}")
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=timeout_s
            )
        except subprocess.TimeoutExpired:
            raise NoAnswer(f"no end within {timeout_s:.0f} s") from None
        if report.exists() and (text := report.read_text()):
            answer = answer_of(json.loads(text))
            if not answer.asked:
                raise NoAnswer(
                    f"knows none of {len(answer.skipped)} packages ({answer.skipped[0]})"
                )
            return answer
    words = (done.stderr or done.stdout).strip()
    last = words.splitlines()[-1] if words else f"exit status {done.returncode}"
    if any(word in words.lower() for word in _NOBODY):
        raise NoAnswer(last)
    raise Broken(last)


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
        for line in answer.skipped:
            sys.stdout.write(f"pip-audit: left out: {line}\n")
        for line in answer.found:
            sys.stdout.write(f"pip-audit: VULNERABLE: {line}\n")
        counts = f"{answer.asked} packages, {len(answer.found)} vulnerabilities"
        sys.stdout.write(f"pip-audit: {service} asked about {counts}\n")
        return 1 if answer.found else 0
    why = "; ".join(refused)
    sys.stdout.write(f"pip-audit: LEFT OUT, nothing was audited: no index answers ({why})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main([sys.executable, "-m", "pip_audit"], sorted(REQUIREMENTS.glob("*.txt"))))
