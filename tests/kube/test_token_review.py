"""Whose token it is: what the API server is asked, how long an answer is used, and what a flood of
tokens can do.
"""

import asyncio
from collections.abc import Container
from dataclasses import replace
from typing import Any

import pytest

from extender.kube import token_review
from extender.kube.api import ApiError, Obj, Resource, TooManyRequests
from extender.kube.forwarding import ForwardingApi
from extender.kube.token_review import NOBODY, TTL_S, ReviewLimits, TokenReviews, TokenUser
from tests.support.clock import Clock

POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
AUDIENCE = "vreplica-schedule"
LIMITS = ReviewLimits()
USER = "system:serviceaccount:knative-eventing:kafka-controller"


def review_of(user: Any = USER, audiences: Any = (AUDIENCE,), **status: Any) -> Obj:
    return {
        "status": {
            "authenticated": True,
            "user": {"username": user} if isinstance(user, str) else user,
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


def reviews_by(api: Reviewer, clock: Clock | None = None, **limits: Any) -> TokenReviews:
    return TokenReviews(
        api, audience=AUDIENCE, clock=clock or Clock(100.0), limits=replace(LIMITS, **limits)
    )


async def user_of(
    reviews: TokenReviews, token: str, *, peer: str = "10.0.0.1", allowed: Container[str] = {USER}
) -> str:
    user = await reviews.user(token, peer=peer, allowed=lambda user: user.name in allowed)
    return user.name


async def test_the_api_server_is_asked_for_the_audience_and_names_the_user():
    api = Reviewer(review_of())
    assert await user_of(reviews_by(api), "t") == USER
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
    assert await user_of(reviews_by(Reviewer(answer)), "t") == ""


@pytest.mark.parametrize(
    ("extra", "pod"),
    [
        pytest.param({POD_NAME: ["a-0"], POD_UID: ["u"]}, ("a-0", "u"), id="bound to a pod"),
        pytest.param({POD_NAME: ["a-0"]}, ("a-0", ""), id="without its UID"),
        pytest.param({POD_NAME: ["a-0", "a-1"], POD_UID: ["u"]}, ("", "u"), id="two pods"),
        pytest.param({POD_NAME: "a-0", POD_UID: [7]}, ("", ""), id="no lists of strings"),
        pytest.param({POD_NAME: [], POD_UID: []}, ("", ""), id="empty lists"),
        pytest.param([], ("", ""), id="no object"),
        pytest.param(None, ("", ""), id="bound to nothing"),
    ],
)
async def test_the_pod_that_a_token_is_bound_to_is_the_one_that_the_review_names(
    extra: Any, pod: tuple[str, str]
):
    user = {"username": USER, "extra": extra}
    reviews = reviews_by(Reviewer(review_of(user=user)))
    found = await reviews.user("t", peer="", allowed=lambda _user: True)
    assert found == TokenUser(USER, *pod)


async def test_who_is_not_accepted_is_bound_to_no_pod():
    user = {"username": USER, "extra": {POD_NAME: ["a-0"], POD_UID: ["u"]}}
    api = Reviewer(review_of(user=user, authenticated=False))
    assert await reviews_by(api).user("t", peer="", allowed=lambda _user: True) == NOBODY


@pytest.mark.parametrize("accepted", [True, False])
async def test_an_answer_is_used_for_some_seconds_and_then_asked_for_again(accepted: bool):
    api, clock = Reviewer(review_of(authenticated=accepted)), Clock(100.0)
    reviews = reviews_by(api, clock)
    user = USER if accepted else ""
    assert [await user_of(reviews, "t"), await user_of(reviews, "t")] == [user, user]
    assert reviews.sent == 1
    clock.now += TTL_S
    assert await user_of(reviews, "t") == user
    assert reviews.sent == 2


async def test_an_account_that_is_deleted_is_out_once_its_answer_is_old():
    api, clock = Reviewer(review_of()), Clock(100.0)
    reviews = reviews_by(api, clock)
    assert await user_of(reviews, "t") == USER
    api.answer = review_of(authenticated=False)
    clock.now += TTL_S
    assert await user_of(reviews, "t") == ""


async def test_callers_with_one_token_share_a_review_and_one_that_leaves_does_not_end_it():
    api = Reviewer(review_of())
    api.go_on.clear()
    reviews = reviews_by(api)
    first, second = (asyncio.create_task(user_of(reviews, "t")) for _ in range(2))
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
        await user_of(reviews, "t")
    api.answer = review_of()
    assert await user_of(reviews, "t") == USER


async def flood(reviews: TokenReviews, count: int, *, peers: int) -> list["asyncio.Task[str]"]:
    """So many new tokens from so many addresses, all under way or refused."""
    tasks = [
        asyncio.create_task(user_of(reviews, f"junk-{index}", peer=f"10.0.1.{index % peers}"))
        for index in range(count)
    ]
    for _ in range(10):
        await asyncio.sleep(0)
    return tasks


async def end(tasks: list["asyncio.Task[str]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def refused(tasks: list["asyncio.Task[str]"]) -> int:
    return sum(task.done() and isinstance(task.exception(), TooManyRequests) for task in tasks)


async def test_a_flood_of_new_tokens_is_refused_and_keeps_no_known_caller_out():
    api, clock = Reviewer(review_of()), Clock(100.0)
    reviews = reviews_by(api, clock)
    assert await user_of(reviews, "known") == USER
    api.go_on.clear()
    tasks = await flood(reviews, LIMITS.new_under_way_max + 50, peers=100)
    assert refused(tasks) == 50
    assert reviews.sent <= 1 + LIMITS.new_burst
    api.go_on.set()
    clock.now += TTL_S
    async with asyncio.timeout(0.5):
        assert await user_of(reviews, "known") == USER
    await end(tasks)


async def test_an_api_server_that_does_not_answer_has_few_reviews_of_new_tokens_under_way(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(token_review, "REVIEW_TIMEOUT_S", 0.05)
    api = Reviewer(review_of())
    api.go_on.clear()
    reviews = reviews_by(api, new_qps=0.0)
    tasks = await flood(reviews, 3 * LIMITS.new_under_way_max, peers=100)
    most = LIMITS.new_under_way_max
    assert (len(api.asked), refused(tasks)) == (most, 2 * most)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(outcome, TimeoutError) for outcome in outcomes) == most
    api.go_on.set()
    assert await user_of(reviews, "t") == USER
    assert not reviews._reviewing
    assert not reviews._new_under_way


async def test_one_address_that_floods_leaves_places_to_a_new_caller_of_another():
    api = Reviewer(review_of())
    reviews = reviews_by(api)
    api.go_on.clear()
    tasks = await flood(reviews, 100, peers=1)
    assert refused(tasks) == 100 - LIMITS.new_of_peer_max
    api.go_on.set()
    async with asyncio.timeout(0.5):
        assert await user_of(reviews, "new") == USER
    await end(tasks)


async def test_a_token_of_a_user_that_is_not_allowed_stays_as_new_as_it_was():
    stranger = "system:serviceaccount:tenant:default"
    api, clock = Reviewer(review_of(stranger)), Clock(100.0)
    reviews = reviews_by(api, clock)
    assert await user_of(reviews, "t") == stranger
    clock.now += TTL_S
    api.go_on.clear()
    tasks = await flood(reviews, LIMITS.new_under_way_max, peers=100)
    with pytest.raises(TooManyRequests):
        await user_of(reviews, "t")
    await end(tasks)


async def test_tokens_of_others_do_not_make_us_forget_those_of_allowed_users():
    api = Reviewer(review_of())
    reviews = reviews_by(api, answers_max=3, new_qps=0.0)
    assert await user_of(reviews, "t") == USER
    api.answer = review_of("system:serviceaccount:tenant:default")
    for index in range(10):
        await user_of(reviews, f"tenant-{index}")
    sent = reviews.sent
    assert await user_of(reviews, "t") == USER
    assert reviews.sent == sent


async def test_no_more_than_so_many_answers_are_kept():
    for authenticated in (True, False):
        api = Reviewer(review_of(authenticated=authenticated))
        reviews = reviews_by(api, answers_max=3, new_qps=0.0)
        for index in range(10):
            await user_of(reviews, f"t{index}")
        assert len(reviews._known) + len(reviews._others) == 3
        assert not reviews._reviewing
