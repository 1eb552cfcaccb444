"""``vreplica adapter-kit`` finds what is wrong with an adapter, and nothing wrong with one that
keeps the contract.
"""

import asyncio
import re

import pytest

from extender.lab.adapter_kit.authority import Authority
from extender.lab.adapter_kit.pools import ORDERS, begin
from extender.lab.adapter_kit.rules import RULES
from extender.lab.adapter_kit.run import Kit, Outcome, Result
from extender.lab.adapter_kit.stage import stage
from tests.lab.adapter_kit.adapters import ADAPTERS, RIGHT
from tests.lab.adapter_kit.playing import REPOSITORY, SHORT, not_kept, program, worker

WRONG = {
    "ServesInPrepare": ("prepares", "told to prepare"),
    "NeverAcknowledges": ("serves", "no acknowledgement"),
    "SaysDrainedTooEarly": ("drains", "has said that it is drained"),
    "ActsOnOldGenerations": ("ignores-older", "team-a/orders|after 42"),
    "IgnoresTheUid": ("ignores-other-uid", "team-b/clicks|of-another-pod"),
    "ForgetsToDrain": ("drains", "acknowledged generation"),
    "GoesOnWhenAShareIsGone": ("stops", "not assigned to it"),
    "EndsAtConflict": ("survives-conflict", "has ended with status 1"),
    "HammersWhenTooOften": ("waits", "of them"),
    "IgnoresSigterm": ("ends-well", "it runs on"),
    "EndsWithoutAWord": ("ends-well", "acknowledged generation"),
    "KeepsTheEpoch": ("fences", "with epoch 7"),
    "AcknowledgesAllTheTime": ("is-quiet", "more than 10 times a second"),
    "WaitsForASilentStream": ("notices-silence", "acknowledged generation 41"),
    "AsksOneReplica": ("fails-over", "acknowledged generation 41"),
    "StopsWithoutTheService": ("serves-on", ""),
    "NeverReadsTheFile": ("reads-file", ""),
    "KeepsTheToken": ("rereads-token", ""),
    "PrefersTheFile": ("ignores-older", "team-a/orders|after 4"),
    "TrustsEveryServer": ("trusts-only-the-ca", "with the pod's token"),
    "TrustsEveryName": ("trusts-only-the-ca", "with the pod's token"),
    "KnowsAllFields": ("ignores-unknown", "has ended with status 1"),
    "KnowsAllFieldsOfAShare": ("ignores-unknown", "has ended with status 1"),
    "EndsEachDrainItBegins": ("takes-back", "acknowledged generation|with epoch 7"),
    "SaysServingTooEarly": ("serves", "the first one after"),
    "SaysServingASecondTooEarly": ("serves", "work .* s after .*acknowledge"),
    "SaysServingTooEarlyAfterPrepare": ("prepares", "work .* s after .*acknowledge"),
    "PausesASecondForNews": ("grows", "no work for "),
    "AcknowledgesTheGenerationBefore": (
        "serves",
        "told generation 41, it acknowledges 40: answered 409",
    ),
    "PausesForNews": ("grows", "the first one after|acknowledged generation"),
    "CountsALeaseFromTheAnswer": ("keeps-lease", "in the second after it"),
    "TakesALeaseFromNews": ("needs-an-answer", "pieces of work"),
    "NeedsNoLeaseLater": ("keeps-lease", "in the second after it"),
    "KeepsALeaseThatIsRefused": ("needs-an-answer", "in the second after it"),
    "CountsItsIndexes": ("indexes", "index 2 of team-a/orders.*the indexes 0-1,5 with epoch 7"),
    "KeepsIndexesThatHaveGone": ("indexes", "index 0 of team-a/orders.*the indexes 1,5"),
    "DropsIndexesThatStay": ("indexes", "acknowledged generation 43"),
}
"""By name: the rule that it breaks, and a pattern of what is seen."""
AT_A_TIME = 6


async def played(command: list[str], *rules: str, **options) -> dict[str, Result]:
    kit = Kit(command=command, names=rules, **options)
    results = await kit.run(lambda _result: None)
    return {result.rule.name: result for result in results}


def test_each_wrong_adapter_has_its_row():
    assert set(WRONG) == set(ADAPTERS) - {right.__name__ for right in RIGHT}


@pytest.mark.timeout(120)
async def test_what_is_wrong_with_each_adapter_is_found_by_its_rule():
    """Side by side: most of the time they wait."""
    turns = asyncio.Semaphore(AT_A_TIME)

    async def missed(name: str) -> Result | None:
        rule, words = WRONG[name]
        async with turns:
            result = (await played(program(name), rule, patience=SHORT))[rule]
        found = result.outcome is Outcome.BROKEN and re.search(words, result.seen)
        return None if found else result

    results = dict(zip(WRONG, await asyncio.gather(*map(missed, WRONG)), strict=True))
    assert {name: result for name, result in results.items() if result is not None} == {}


@pytest.mark.timeout(90)
async def test_a_small_adapter_without_the_library_keeps_all_rules():
    results = await played(program("Adapter"))
    assert not_kept(results.values()) == {}
    assert all(result.work_was_seen for result in results.values())


async def test_an_adapter_without_leases_breaks_the_rules_of_exclusive_pools_only():
    lease_rules = ("keeps-lease", "needs-an-answer")
    wrong = await played(program("Adapter"), *lease_rules, patience=SHORT)
    assert {result.outcome for result in wrong.values()} == {Outcome.BROKEN}
    right = await played(program("KeepsItsLease"), *lease_rules, patience=SHORT)
    assert not_kept(right.values()) == {}


@pytest.mark.parametrize("name", ["IsHeldUpOnce", "WorksOnceASecond"])
async def test_an_adapter_that_is_late_once_or_by_no_more_than_its_lines_are_apart_is_right(name):
    results = await played(program(name), "serves", "prepares", "grows", patience=SHORT)
    assert not_kept(results.values()) == {}


async def test_an_adapter_that_knows_no_indexes_is_not_judged_by_them():
    results = await played(program("KnowsNoIndexes"), "serves", "indexes", patience=SHORT)
    assert results["serves"].outcome is Outcome.KEPT
    assert results["indexes"].outcome is Outcome.SKIPPED
    assert "for pools without indexes" in results["indexes"].seen


async def test_the_pre_stop_hook_of_the_page_waits_until_the_adapter_has_let_go(tmp_path):
    shown = re.search(
        r"command: \[sh, -c, \"(.*)\"\]", (REPOSITORY / "docs/adapters.md").read_text()
    )
    assert shown is not None
    folder = tmp_path / "pod"
    async with stage(program("EndsAtSigterm"), folder, Authority(), SHORT) as played:
        await begin(played)
        hook = await asyncio.create_subprocess_exec(
            "sh", "-c", shown[1].replace("/tmp/", f"{folder}/")
        )
        async with asyncio.timeout(5):
            assert await hook.wait() == 0
        assert played.has_said({"drained": [ORDERS]})
        played.process.terminate()
        async with asyncio.timeout(5):
            while played.process.exit_status is None:  # noqa: ASYNC110 (a process)
                await asyncio.sleep(0.02)
        played.must_be_right("no work once the hook has returned")


@pytest.mark.timeout(90)
async def test_the_worker_of_the_python_library_keeps_all_rules_those_of_leases_too():
    results = await played(worker(), exclusive=True)
    assert not_kept(results.values()) == {}
    assert set(results) == {rule.name for rule in RULES}
    assert all(result.work_was_seen for result in results.values())
