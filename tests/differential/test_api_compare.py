"""The comparison itself: what it must find, and what it must not."""

import asyncio
import time

import pytest

from extender.kube.api import Obj
from extender.lab.apiserver.cluster import Cluster
from tests.differential import api_run
from tests.differential.api_compare import Normaliser, gist, leaves
from tests.differential.api_generator import sequence
from tests.differential.api_operations import Operation, Outcome
from tests.differential.api_sides import embedded_api

CREATE = Operation("create", "Pod", "a")


def normalised(*objects: Obj) -> list[Obj]:
    normaliser = Normaliser("ns", time.time())
    return [normaliser.outcome(Outcome(shown=obj), CREATE)["shown"] for obj in objects]


def at(version: str) -> Obj:
    return {"metadata": {"resourceVersion": version}}


def test_versions_compare_by_their_order_alone():
    assert normalised(at("5"), at("9"), at("5")) == normalised(at("100"), at("101"), at("100"))
    assert normalised(at("5"), at("9")) != normalised(at("9"), at("5"))
    assert normalised(at("5"), at("5")) != normalised(at("5"), at("6"))


def test_null_is_not_the_same_as_nothing():
    assert [leaf.path for leaf in leaves({"a": None}, {})] == ["a"]
    assert not list(leaves({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}))
    assert [leaf.path for leaf in leaves({"a": [1, {"b": 2}]}, {"a": [1, {"b": True}]})] == [
        "a[1].b"
    ]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('Pod "p" is invalid: spec.a: Required value', "spec.a: Required value"),
        (
            'X is invalid: [b: Forbidden: no, a[0].c: Invalid value: "x"]',
            "a[0].c: Invalid value; b: Forbidden",
        ),
        ('Pod in version "v1" cannot be handled as a Pod: whatever', "cannot be handled"),
        ("something else", "something else"),
    ],
)
def test_the_gist_of_a_refusal_is_which_fields_are_wrong_and_how(message: str, expected: str):
    assert gist(message) == expected


def test_a_seed_always_makes_the_same_sequence():
    assert sequence(7, 30) == sequence(7, 30)
    assert sequence(7, 12) == sequence(7, 30)[:12]
    assert sequence(7, 30) != sequence(8, 30)


class _Forgetful(Cluster):
    """Loses annotations in patches."""

    async def patch(self, *args: object, **kwargs: object) -> Obj:
        stored: Obj = await super().patch(*args, **kwargs)  # type: ignore[arg-type]
        stored["metadata"].pop("annotations", None)
        return stored


async def _other(broken: bool) -> Cluster:
    cluster = await embedded_api(0)
    if broken:
        cluster.__class__ = _Forgetful
    return cluster


def test_a_server_is_like_itself():
    totals = asyncio.run(_compared(broken=False))
    assert (totals.sequences, totals.failed) == (4, [])


def test_a_server_that_loses_annotations_is_found_out_and_the_sequence_made_short():
    totals = asyncio.run(_compared(broken=True))
    assert totals.failed
    assert all(
        ".annotations" in leaf.path for failed in totals.failed for _, _, leaf in failed.problems
    )

    async def shorter() -> api_run.Verdict:
        return await api_run.shrunk(await _other(broken=True), totals.failed[0], api_run.LENGTH)

    short = asyncio.run(shorter())
    assert short.signature == totals.failed[0].signature
    assert len(short.kept) <= 4
    assert (
        f"--seed {short.seed} --sequences 1 --only {','.join(map(str, short.kept))}"
        in short.lines()[-1]
    )


async def _compared(*, broken: bool) -> api_run.Totals:
    return await api_run.compare_all(await _other(broken), range(40, 44), workers=1)
