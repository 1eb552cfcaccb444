"""The fuzzer finds what it is there to find: shown on targets that are broken on purpose."""

import random

import orjson
import pytest

from tests.fuzz import corpus, runner
from tests.fuzz.findings import Broken
from tests.fuzz.mutator import BYTES_MAX, Mutator
from tests.fuzz.target import Target

SEED = orjson.dumps({"vpod": {"name": "a", "vreplicas": 3}, "items": [1, 2, {"b": None}]})


class Breaking(Target):
    """Goes wrong where ``wrong`` says so."""

    name = "breaking"

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.wrong = wrong
        self.seeds = [SEED]
        self.kept: list[bytes] = []

    async def run(self, data: bytes) -> str:
        try:
            document = orjson.loads(data)
        except orjson.JSONDecodeError:
            return "no JSON"
        count = (
            document.get("vpod", {}).get("vreplicas")
            if isinstance(document, dict) and isinstance(document.get("vpod"), dict)
            else 3
        )
        if count != 3:
            self._go_wrong(data)
        return "read"

    def _go_wrong(self, data: bytes) -> None:
        match self.wrong:
            case "crash":
                raise KeyError("vreplicas")
            case "hang":
                while True:
                    pass
            case "slow":
                sum(range(2_000_000))
            case "leave":
                self.kept.append(data)
            case _:
                pass

    async def check(self) -> None:
        if self.kept:
            raise Broken("something is left")

    async def close(self) -> None:
        self.kept.clear()


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [("crash", "KeyError"), ("leave", "left behind"), ("slow", "slow"), ("hang", "hangs")],
)
async def test_a_broken_target_is_found(wrong: str, kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runner, "HUNG_S", 0.5)
    monkeypatch.setattr(runner, "FINDINGS_MAX", 1)
    monkeypatch.setattr(Breaking, "slow_s", 0.01)
    run = await runner.fuzz_target(Breaking(wrong), 5_000, seed=1)
    (found,) = run.report.findings.values()
    assert found.kind.startswith(kind)
    assert b"vreplicas" in found.data or b"vpod" in found.data


async def test_a_target_that_is_sound_has_no_findings():
    run = await runner.fuzz_target(Breaking("not at all"), 2_000, seed=1)
    assert run.report.findings == {}
    assert set(run.report.outcomes) == {"read", "no JSON"}


def test_the_same_seed_gives_the_same_inputs():
    def inputs(seed: int) -> list[bytes]:
        mutator = Mutator(random.Random(seed), [SEED, b"not json"], ["vpod"])
        return [mutator.next() for _ in range(300)]

    assert inputs(7) == inputs(7)
    assert inputs(7) != inputs(8)
    assert max(map(len, inputs(7))) <= BYTES_MAX


def test_the_mutator_writes_what_no_encoder_writes():
    mutator = Mutator(random.Random(1), [SEED], ["vpod"])
    inputs = [mutator.next() for _ in range(5_000)]
    for hostile in (b"NaN", b"1e999", b"\\ud800", b'{"a":' * 300, b'"VPOD"'):
        assert any(hostile in data for data in inputs), hostile
    assert any(data.count(b'"vreplicas":') > 1 for data in inputs)
    assert not any(b"~RAW" in data or b"~DUP" in data for data in inputs if len(data) < BYTES_MAX)


def test_an_input_that_is_made_larger_again_and_again_fits_into_memory(
    monkeypatch: pytest.MonkeyPatch,
):
    sizes = []

    def encoded(_mutator: Mutator, tree: object) -> bytes:
        sizes.append(len(orjson.dumps(tree)))
        return b"{}"

    monkeypatch.setattr(Mutator, "_encoded", encoded)
    mutator = Mutator(random.Random(1), [SEED], [], structural=1.0)
    monkeypatch.setattr(mutator, "_changes", (mutator._grow,))
    for _ in range(2_000):
        mutator.next()
    assert max(sizes) < 5_000 * len(SEED)


async def test_an_input_is_made_smaller_as_long_as_its_outcome_stays(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(corpus, "MINIMISE_S", 5.0)
    data = await corpus.minimised(Breaking("not at all"), "read", SEED)
    assert len(data) <= 2


def test_what_is_kept_is_read_back(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(corpus, "FOLDER", tmp_path)
    entries = {"a": b'{"x":1}', "b": b"\xff\x00", "c": b"[" * 2_000, "d": "ü\n".encode()}
    assert corpus.save("t", entries) == 4
    assert dict(corpus.load("t")) == entries
    assert corpus.load("unknown") == []
