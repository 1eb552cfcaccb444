"""``TokenReviews``: whose ServiceAccount token this is, as the API server says.

As Kubernetes' own servers do with callers' tokens (``apiserver/pkg/authentication/token/cache``),
an answer is used for some seconds: so long can a token be used after its ServiceAccount or its pod
is deleted. Tokens are kept only as hashes, and appear in no message.

Anybody who reaches the listener can send tokens, and so can a ServiceAccount that may not call. So
reviews of new tokens are limited: in their rate, in how many are under way, and in how many of
those came from one address. A token whose user is allowed is known from then on. Its answer is kept
apart from those of all others, and its next review waits for nothing. At most one review of a token
is under way.
"""

import asyncio
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from extender.kube.api import TOKEN_REVIEWS, Api, Obj, TooManyRequests
from extender.kube.ratelimit import TokenBucket
from extender.model.bounded import put_bounded

TTL_S: Final = 10.0
"""Kubernetes' default for delegated authentication."""
REVIEW_TIMEOUT_S: Final = 3.0
"""How long the API server has for a review, once it is sent."""
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewLimits:
    """Bounds of one ``TokenReviews``."""

    answers_max: int = 1_000
    """Answers that are kept: so many of allowed users' tokens, and as many of all others."""
    new_qps: float = 10.0
    new_burst: int = 20
    new_under_way_max: int = 40
    """Reviews of new tokens that wait to be sent or for their answer. A pod's token is new once an
    hour.
    """
    new_of_peer_max: int = 5
    """Those of them that came from one address, so that one flood leaves places to others."""


class TokenUser(NamedTuple):
    """Whose token it is. ``pod_name``, ``pod_uid``: of the pod to which the token is bound, "" for
    none.
    """

    name: str
    pod_name: str = ""
    pod_uid: str = ""


NOBODY: Final = TokenUser("")
"""The API server does not accept the token."""


class _Answer(NamedTuple):
    user: TokenUser
    until: float
    """When the answer is too old."""


class TokenReviews:
    """Reviews tokens for ``audience``. ``clock``: monotonic, seconds. RBAC: create of
    ``tokenreviews``.
    """

    def __init__(
        self,
        api: Api,
        *,
        audience: str,
        clock: Callable[[], float],
        limits: ReviewLimits | None = None,
    ) -> None:
        self._api = api
        self._audience = audience
        self._clock = clock
        self._limits = limits or ReviewLimits()
        self._known: OrderedDict[bytes, _Answer] = OrderedDict()
        """By hash of the token, of users that were allowed."""
        self._others: OrderedDict[bytes, _Answer] = OrderedDict()
        self._reviewing: dict[bytes, asyncio.Task[TokenUser]] = {}
        self._new = TokenBucket(self._limits.new_qps, self._limits.new_burst)
        self._new_under_way: Counter[str] = Counter()
        """Reviews of new tokens by the address that they came from."""
        self.sent = 0
        """Reviews sent to the API server."""

    async def user(
        self, token: str, *, peer: str, allowed: Callable[[TokenUser], bool]
    ) -> TokenUser:
        """Return the token's user; NOBODY if the API server does not accept it for the audience.

        ``peer``: the address that sent the token. ``allowed``: whether a user's token is known from
        then on. Raises ApiError or TimeoutError if there is no answer, TooManyRequests if too many
        new tokens are under way.
        """
        key = hashlib.sha256(token.encode()).digest()
        answer = self._known.get(key) or self._others.get(key)
        if answer is not None and self._clock() < answer.until:
            return answer.user
        review = self._reviewing.get(key) or self._begin(key, token, peer, allowed)
        # A caller that gives up does not end the review for the others.
        return await asyncio.shield(review)

    def _begin(
        self, key: bytes, token: str, peer: str, allowed: Callable[[TokenUser], bool]
    ) -> "asyncio.Task[TokenUser]":
        is_new = key not in self._known
        if is_new:
            self._check_room(peer)
            self._new_under_way[peer] += 1
        review = asyncio.create_task(
            self._review(key, token, allowed, is_new=is_new), name="token review"
        )
        self._reviewing[key] = review

        def ended(done: "asyncio.Task[TokenUser]") -> None:
            del self._reviewing[key]
            if is_new:
                self._new_under_way[peer] -= 1
                self._new_under_way += Counter()  # drops the zeros
            if not done.cancelled():
                done.exception()  # retrieved, so that asyncio does not log it

        review.add_done_callback(ended)
        return review

    def _check_room(self, peer: str) -> None:
        all_new = self._new_under_way.total()
        of_peer = self._new_under_way[peer]
        limits = self._limits
        if all_new >= limits.new_under_way_max or of_peer >= limits.new_of_peer_max:
            raise TooManyRequests(
                429, "TooManyReviews", f"{all_new} new tokens are being reviewed already"
            )

    async def _review(
        self, key: bytes, token: str, allowed: Callable[[TokenUser], bool], *, is_new: bool
    ) -> TokenUser:
        if is_new:
            await self._new.acquire()
        self.sent += 1
        spec = {"token": token, "audiences": [self._audience]}
        async with asyncio.timeout(REVIEW_TIMEOUT_S):
            user = self._user_of(await self._api.create(TOKEN_REVIEWS, "", {"spec": spec}))
        self._known.pop(key, None)
        kept = self._known if user.name and allowed(user) else self._others
        put_bounded(kept, key, _Answer(user, self._clock() + TTL_S), self._limits.answers_max)
        return user

    def _user_of(self, review: Obj) -> TokenUser:
        """An API server that does not know audiences returns none: then the token may be meant for
        anybody, and is not accepted.
        """
        status = review.get("status")
        if not isinstance(status, Mapping) or status.get("authenticated") is not True:
            return NOBODY
        audiences, user = status.get("audiences"), status.get("user")
        if not isinstance(audiences, list) or self._audience not in audiences:
            return NOBODY
        name = user.get("username") if isinstance(user, Mapping) else None
        if not isinstance(user, Mapping) or not isinstance(name, str):
            return NOBODY
        extra = user.get("extra")
        return TokenUser(name, _only(extra, _POD_NAME), _only(extra, _POD_UID))


def _only(extra: object, key: str) -> str:
    """The one string under a key of ``user.extra``, as a token that is bound to a pod has it
    (Kubernetes 1.20 and later); "" for anything else.
    """
    found = extra.get(key) if isinstance(extra, Mapping) else None
    if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], str):
        return ""
    return found[0]
