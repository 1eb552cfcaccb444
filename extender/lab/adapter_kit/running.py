"""Plays the rules against an adapter that runs already, one after the other.

The adapter stays, so nothing may be left of a rule when the next one begins. Each rule is a round:
it begins with an assignment without shares, which the adapter has to acknowledge.
"""

import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from extender.lab.adapter_kit.address import Address
from extender.lab.adapter_kit.authority import Authority
from extender.lab.adapter_kit.folder import SharedFolder
from extender.lab.adapter_kit.process import RunningAdapter
from extender.lab.adapter_kit.rules import Rule
from extender.lab.adapter_kit.run import Choice, Outcome, Result, judged
from extender.lab.adapter_kit.stage import Pod, Stage, opened
from extender.model.errors import VReplicaError

FAREWELL_S: Final = 2.0
"""For an adapter to hear, after the last rule, that nothing is assigned to it."""
NEEDS_PROCESS: Final = (
    "an adapter that runs already is neither started nor ended: check it with vreplica "
    "adapter-kit COMMAND"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running(Choice):
    """Plays rules against one adapter. ``folder``: of ``SharedFolder``, a temporary one if None.

    ``wait_s``: until the adapter connects, at first and after each rule. ``announce``: is told what
    the adapter needs, and that it has connected.
    """

    addresses: tuple[Address, Address]
    announce: Callable[[str], None]
    folder: Path | None = None
    wait_s: float = 60.0

    async def run(self, done: Callable[[Result], None]) -> list[Result]:
        """Play the rules and return their results in order. ``done`` hears of each as it ends.
        Raises VReplicaError if no adapter connects, or the kit cannot listen.
        """
        rules = self.rules()
        if all(rule.needs_process for rule in rules):
            names = ", ".join(rule.name for rule in rules)
            raise VReplicaError(f"{names} cannot be played: {NEEDS_PROCESS}")
        with self._shared() as folder:
            pod = Pod(
                folder=folder.path,
                uid=folder.uid,
                token=folder.token,
                addresses=self.addresses,
                first_round=folder.next_round(),
            )
            authority = Authority(self.addresses[0].host, folder.pair)
            made = Stage(RunningAdapter(), pod, authority, self.patience)
            made.log.skip()
            try:
                return await self._on(made, folder, rules, done)
            except OSError as error:
                raise VReplicaError(
                    f"the kit cannot listen at {self.addresses[0].url}: {error}"
                ) from None
            finally:
                made.replace_token(folder.token)

    @contextmanager
    def _shared(self) -> Iterator[SharedFolder]:
        if self.folder is None:
            with tempfile.TemporaryDirectory(prefix="vreplica-adapter-kit-") as name:
                yield SharedFolder(Path(name))
            return
        try:
            folder = SharedFolder(self.folder)
        except OSError as error:
            raise VReplicaError(f"the folder {self.folder} cannot be used: {error}") from None
        yield folder

    async def _on(
        self, made: Stage, folder: SharedFolder, rules: list[Rule], done: Callable[[Result], None]
    ) -> list[Result]:
        last = [rule for rule in rules if not rule.needs_process][-1]
        results: list[Result] = []
        lost = ""
        async with opened(made) as stage:
            await self._wait_for_the_adapter(stage, folder)
            # An adapter that does not acknowledge breaks the first rule.
            await self._lost(stage)
            for rule in rules:
                if lost or rule.needs_process:
                    why = NEEDS_PROCESS if rule.needs_process else lost
                    result = Result(rule, Outcome.SKIPPED, seen=why, work_was_seen=False)
                else:
                    result = await judged(rule, stage)
                    await stage.begin_round(folder.next_round())
                    if rule is last:
                        await stage.comes(stage.has_said, FAREWELL_S, "")
                    elif problem := await self._lost(stage):
                        result = _with(problem, result)
                        lost = f"the adapter was not ready for another rule after {rule.name}"
                results.append(result)
                done(result)
        return results

    async def _wait_for_the_adapter(self, stage: Stage, folder: SharedFolder) -> None:
        variables = stage.variables()
        self.announce("The kit listens. The adapter needs these variables:")
        for name, value in variables.items():
            self.announce(f"  export {name}={shlex.quote(value)}")
        self.announce(
            "On another machine or in a container, it needs copies of ca.crt and token in the "
            "folder that VREPLICA_DIR names there."
        )
        self.announce(f"Waiting {self.wait_s:g} s for the adapter to connect ...")
        if not await stage.comes(lambda: stage.desk.authorized > 0, self.wait_s, ""):
            first = self.addresses[0].url
            why = (
                f"requests came without the token of {folder.path}/token"
                if stage.desk.unauthorized
                else f"is VREPLICA_URLS={variables['VREPLICA_URLS']} set, and has the folder "
                f"VREPLICA_DIR the ca.crt and token of {folder.path}?"
            )
            raise VReplicaError(f"no adapter connected to {first} within {self.wait_s:g} s: {why}")
        self.announce("An adapter has connected.")

    async def _lost(self, stage: Stage) -> str:
        """Wait until the adapter has nothing any more and listens. Return what is missing."""
        if stage.desk.has_streamed and not await stage.comes(
            lambda: bool(stage.desk.streams - stage.desk.silenced), self.wait_s, ""
        ):
            return f"the adapter has not connected again within {self.wait_s:g} s"
        limit_s = max(self.patience.start_s, self.patience.step_s)
        if not await stage.comes(stage.has_said, limit_s, ""):
            return (
                f"the adapter has not acknowledged within {limit_s:g} s that nothing is assigned "
                f"any more: {stage.seen()}"
            )
        stage.contract.violations.clear()
        return ""


def _with(problem: str, result: Result) -> Result:
    """Return the result of the rule after which the adapter is lost."""
    if result.outcome is Outcome.BROKEN:
        return result
    return replace(
        result,
        outcome=Outcome.BROKEN,
        expected="the adapter ready for the next rule",
        seen=problem,
    )
