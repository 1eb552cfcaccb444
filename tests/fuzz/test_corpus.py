"""The kept corpus: every input that once had an outcome of its own still breaks nothing, and is
still taken or refused.
"""

import asyncio

import pytest

from tests.fuzz import corpus
from tests.fuzz.registry import TARGETS

CORPUS_BYTES_MAX = 1024 * 1024


def sort_of(outcome: str) -> str:
    """Taken or refused, and how: texts may be worded anew, that does not make a finding."""
    first, _, rest = outcome.partition(" ")
    return f"{first} {rest.partition(' ')[0]}" if first.endswith("Error") else first


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.slow
async def test_what_is_kept_breaks_nothing_and_has_its_outcome(name: str):
    target = TARGETS[name]()
    await target.open()
    try:
        found = {}
        for outcome, data in corpus.load(name):
            found[data] = (sort_of(await target.run(data)), sort_of(outcome))
            await target.check()
        # Nothing: the server still waited for the rest when we went, which depends on how busy the
        # machine is.
        changed = {
            data: pair
            for data, pair in found.items()
            if pair[0] != pair[1] and "nothing" not in pair
        }
        assert not changed, "if that is meant: python -m tests.fuzz --rewrite-corpus"
        assert found
    finally:
        await target.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", TARGETS)
async def test_the_seeds_of_a_target_are_not_all_refused(name: str):
    target = TARGETS[name]()
    await target.open()
    try:
        outcomes = [await target.run(seed) for seed in target.seeds]
    finally:
        await target.close()
    assert any(not sort_of(outcome)[0].isupper() for outcome in outcomes), outcomes


def test_the_corpus_is_small():
    assert sum(path.stat().st_size for path in corpus.FOLDER.glob("*.jsonl")) < CORPUS_BYTES_MAX
    assert {path.stem for path in corpus.FOLDER.glob("*.jsonl")} == set(TARGETS)
