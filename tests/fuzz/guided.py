"""``python -m tests.fuzz.guided TARGET FOLDER [libFuzzer's flags]``: atheris, guided by coverage,
in a process of its own.

libFuzzer ends the process at the end of its runs; what it has learnt are the files in FOLDER, which
``python -m tests.fuzz --driver atheris`` looks at afterwards. Inputs change by libFuzzer's own
rules and by ours, by turns. atheris is optional.
"""

import asyncio
import importlib
import logging
import random
import sys
from typing import Any, Final

atheris: Final[Any] = importlib.import_module("atheris")
with atheris.instrument_imports(include=["extender", "webhook"]):
    from tests.fuzz import runner
    from tests.fuzz.findings import say
    from tests.fuzz.mutator import BYTES_MAX, Mutator
    from tests.fuzz.registry import TARGETS


class Guided:
    """What libFuzzer calls: one input at a time, and a change of one."""

    def __init__(self, name: str) -> None:
        self._runner = asyncio.Runner()
        self._target = TARGETS[name]()
        self._runner.run(self._target.open())
        self._run = runner.Run(self._target)
        self._words = self._target.dictionary()
        self._inputs = 0
        runner.arm()

    def one(self, data: bytes) -> None:
        """Run an input; a finding is printed at once, the first of its kind."""
        known = len(self._run.report.findings)
        self._runner.run(self._run.one(data))
        self._inputs += 1
        if self._inputs % runner.CHECK_PERIOD == 0:
            self._runner.run(self._run.look())
        for finding in list(self._run.report.findings.values())[known:]:
            say(finding.told())

    def change(self, data: bytes, size_max: int, seed: int) -> bytes:
        """Another input, made of this one."""
        rng = random.Random(seed)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(data, size_max))
        return Mutator(
            rng, [data or b"{}"], self._words, structural=self._target.structural
        ).next()[:size_max]


def main() -> None:
    """Fuzz until libFuzzer's flags say that it is enough."""
    name, folder, *flags = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    guided = Guided(name)
    # The alarm is ours, see ``runner``: libFuzzer's own would be the same signal.
    arguments = [sys.argv[0], folder, "-timeout=0", f"-max_len={BYTES_MAX}", "-verbosity=0", *flags]
    atheris.Setup(arguments, guided.one, custom_mutator=guided.change, internal_libfuzzer=True)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
