"""Whose token it is: what the API server is asked, how long an answer is used, and what a flood of
tokens can do.
"""

import asyncio
from typing import Any

import pytest

from extender.kube import token_review
from extender.kube.api import ApiError, Obj, Resource, TooManyRequests
from extender.kube.forwarding import ForwardingApi
from extender.kube.token_review import NEW_BURST, NEW_WAITING_MAX, TTL_S, TokenReviews

AUDIENCE = "vreplica-schedule"
USER = "system:serviceaccount:knative-eventing:kafka-controller"


def review_of(user: str = USER, audiences: Any = (AUDIENCE,), **status: Any) -> Obj:
    return {
        "status": {
            "authenticated": True,
            "user": {"username": user},
            "audiences": list(audiences),
            **status,
        }
    }


class Reviewer(ForwardingApi):
    """An API server that answers TokenReviews, and nothing else."""

    def __init__(self, answer: Obj | ApiError) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.answer = answer
        self.asked: list[Obj] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        assert (resource.path, resource.plural) == (
            "/apis/authentication.k8s.io/v1",
            "tokenreviews",
        )
        self.asked.append(obj["spec"])
        await self.go_on.wait()
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def reviews_by(api: Reviewer, clock: Clock | None = None) -> TokenReviews:
    return TokenReviews(api, audience=AUDIENCE, clock=clock or Clock())


async def test_the_api_server_is_asked_for_the_audience_and_names_the_user():
    api = Reviewer(review_of())
    assert await reviews_by(api).user("t") == USER
    assert api.asked == [{"token": "t", "audiences": [AUDIENCE]}]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(review_of(authenticated=False), id="not authenticated"),
        pytest.param(review_of(authenticated="true"), id="authenticated is no boolean"),
        pytest.param(review_of(audiences=["other"]), id="for another audience"),
        pytest.param(review_of(audiences=[]), id="a server that knows no audiences"),
        pytest.param(review_of(user=""), id="nobody"),
        pytest.param({"status": {"authenticated": True, "audiences": [AUDIENCE]}}, id="no user"),
        pytest.param({}, id="no status"),
        pytest.param({"status": []}, id="a status that is none"),
    ],
)
async def test_what_does_not_say_who_it_is_for_us_is_nobody(answer: Obj):
    assert await reviews_by(Reviewer(answer)).user("t") == ""


@pytest.mark.parametrize("accepted", [True, False])
async def test_an_answer_is_used_for_some_seconds_and_then_asked_for_again(accepted: bool):
    api, clock = Reviewer(review_of(authenticated=accepted)), Clock()
    reviews = reviews_by(api, clock)
    user = USER if accepted else ""
    assert [await reviews.user("t"), await reviews.user("t")] == [user, user]
    assert reviews.sent == 1
    clock.now += TTL_S
    assert await reviews.user("t") == user
    assert reviews.sent == 2


async def test_an_account_that_is_deleted_is_out_once_its_answer_is_old():
    api, clock = Reviewer(review_of()), Clock()
    reviews = reviews_by(api, clock)
    assert await reviews.user("t") == USER
    api.answer = review_of(authenticated=False)
    clock.now += TTL_S
    assert await reviews.user("t") == ""


async def test_callers_with_one_token_share_a_review_and_one_that_leaves_does_not_end_it():
    api = Reviewer(review_of())
    api.go_on.clear()
    reviews = reviews_by(api)
    first, second = (asyncio.create_task(reviews.user("t")) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first})
    api.go_on.set()
    assert await second == USER
    assert reviews.sent == 1


async def test_no_answer_is_an_error_and_is_not_remembered():
    api = Reviewer(ApiError(500, "InternalError", "etcd"))
    reviews = reviews_by(api)
    with pytest.raises(ApiError):
        await reviews.user("t")
    api.answer = review_of()
    assert await reviews.user("t") == USER


async def test_a_flood_of_new_tokens_is_refused_and_keeps_no_known_caller_out():
    api, clock = Reviewer(review_of()), Clock()
    reviews = reviews_by(api, clock)
    assert await reviews.user("known") == USER
    api.answer = review_of(authenticated=False)
    tokens = [f"junk-{index}" for index in range(NEW_BURST + NEW_WAITING_MAX + 50)]
    flood = [asyncio.create_task(reviews.user(token)) for token in tokens]
    for _ in range(10):
        await asyncio.sleep(0)
    refused = [
        task for task in flood if task.done() and isinstance(task.exception(), TooManyRequests)
    ]
    assert len(refused) >= 50
    clock.now += TTL_S
    api.answer = review_of()
    async with asyncio.timeout(0.5):
        assert await reviews.user("known") == USER
    for task in flood:
        task.cancel()
    await asyncio.wait(flood)


async def test_no_more_than_so_many_answers_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(token_review, "ANSWERS_MAX", 3)
    monkeypatch.setattr(token_review, "NEW_QPS", 0.0)
    for authenticated in (True, False):
        reviews = reviews_by(Reviewer(review_of(authenticated=authenticated)))
        for index in range(10):
            await reviews.user(f"t{index}")
        assert len(reviews._accepted) + len(reviews._refused) == 3
        assert not reviews._reviewing
