"""``python -m tests.attack [--short] [--only NAME,..]``: attacks on the running programs; exit 1
where one has an effect.

The service on the embedded cluster, and the webhook over TLS, as processes of their own with the
arguments that are shipped; their peak memory is held to the limits of their containers. An attack
is a module here with ``async def play(target) -> list[str]``, what is wrong; its name goes into
``ATTACKS``.
"""

import argparse
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import uvloop

from tests.attack import callers, heads, impostors, names, readers, rebinding, strangers
from tests.attack.listening import SystemWithCallers
from tests.attack.target import QUIET_S, Target, apart
from tests.e2e.embedded import EmbeddedBackend
from tests.e2e.matrix import ROOT
from tests.e2e.waiting import eventually
from tests.support.service import filter_args
from tests.webhook.builders import a_pod, review

log = logging.getLogger(__name__)

ATTACKS: Final[Mapping[str, Callable[[Target], Awaitable[list[str]]]]] = {
    "rebinding": rebinding.play,
    "strangers": strangers.play,
    "impostors": impostors.play,
    "names": names.play,
    "readers": readers.play,
    "callers": callers.play,
    "heads": heads.play,
}
ADAPTERS_WITHIN_S: Final = 30.0
VPODS, VPODS_SHORT = 1_500, 500


def as_in_the_image() -> None:
    """What the image sets for how memory is given back is set for the programs that we start."""
    (found,) = re.findall(r"\b(MALLOC_\w+)=(\S+)", (ROOT / "Containerfile").read_text())
    os.environ[found[0]] = found[1]


async def run(directory: Path, *, short: bool, only: frozenset[str]) -> list[str]:
    """All attacks, or those; what is wrong, by attack."""
    wrong = []
    async with (
        EmbeddedBackend(directory) as backend,
        SystemWithCallers(backend, directory) as system,
    ):
        nodes = await backend.add_nodes(3)
        others = {"operator": "NotIn", "values": [callers.STRANGER]}
        selected = {"key": "kubernetes.io/metadata.name", **others}
        await system.pool(maxPods=2, namespaceSelector={"matchExpressions": [selected]})
        count = VPODS_SHORT if short else VPODS
        for _ in range(count // 100):
            await system.vpods(100, 1)
        (pod, *_) = await eventually(system.adapters, ADAPTERS_WITHIN_S, "there are adapter pods")
        target = Target(system, filter_args(pod, nodes), review(a_pod()), short, {})
        apart(target.programs.values())
        target = replace(target, quiet=await target.ask(QUIET_S))
        failed = [failure for honest in target.quiet.values() for failure in honest.failed]
        assert not failed, f"before any attack {len(failed)} requests failed: {failed[0]}"
        for program, honest in target.quiet.items():
            log.info("%s before: p99 %.0f ms", program, honest.p99_s() * 1e3)
        for name, play in ATTACKS.items():
            if only and name not in only:
                continue
            began = time.monotonic()
            found = await play(target)
            log.info(
                "%s: %s in %.0f s",
                name,
                f"{len(found)} effects" if found else "no effect",
                time.monotonic() - began,
            )
            wrong += [f"{name}: {effect}" for effect in [*found, *target.memory()]]
    return wrong


def main(arguments: list[str]) -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack")
    parser.add_argument("--short", action="store_true", help="less of each, for CI")
    parser.add_argument("--only", default="", help=f"some of: {', '.join(ATTACKS)}")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    as_in_the_image()
    only = frozenset(filter(None, options.only.split(",")))
    if unknown := only - ATTACKS.keys():
        parser.error(f"no attack is called {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="vreplica-attack-") as directory:
        wrong = uvloop.run(run(Path(directory), short=options.short, only=only))
    for effect in wrong:
        log.error("%s", effect)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
