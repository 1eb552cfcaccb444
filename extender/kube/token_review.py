"""``TokenReviews``: whose ServiceAccount token this is, as the API server says.

As Kubernetes' own servers do with callers' tokens (``apiserver/pkg/authentication/token/cache``),
an answer is used for some seconds: so long can a token be used after its ServiceAccount or its pod
is deleted. Tokens are kept only as hashes, and appear in no message.

Anybody who reaches the listener can send tokens. So new ones are reviewed at a limited rate, and a
few may wait. A token that was accepted before is not held up by them. At most one review of a token
is under way.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from extender.kube.api import Api, Obj, Resource
from extender.kube.ratelimit import TokenBucket
from extender.model.bounded import put_bounded

TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
TTL_S: Final = 10.0
"""Kubernetes' default for delegated authentication."""
ANSWERS_MAX: Final = 1_000
"""Answers that are kept: so many good ones, and as many refusals."""
NEW_QPS: Final = 10.0
NEW_BURST: Final = 20
NEW_WAITING_MAX: Final = 20
"""New tokens that wait for a review. A pod's token is new once an hour."""


class TokenReviews:
    """Reviews tokens for ``audience``. ``clock``: monotonic, seconds. RBAC: create of
    ``tokenreviews``.
    """

    def __init__(self, api: Api, *, audience: str, clock: Callable[[], float]) -> None:
        self._api = api
        self._audience = audience
        self._clock = clock
        self._accepted: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        """Hash of a token -> its user, and until when the answer is used."""
        self._refused: OrderedDict[bytes, float] = OrderedDict()
        self._reviewing: dict[bytes, asyncio.Task[str]] = {}
        self._new = TokenBucket(NEW_QPS, NEW_BURST, waiters_max=NEW_WAITING_MAX)
        self.sent = 0
        """Reviews sent to the API server."""

    async def user(self, token: str) -> str:
        """Return the token's user; "" if the API server does not accept it for the audience.

        Raises ApiError if there is no answer, TooManyRequests if too many new tokens wait.
        """
        key = hashlib.sha256(token.encode()).digest()
        now = self._clock()
        if (accepted := self._accepted.get(key)) is not None and now < accepted[1]:
            return accepted[0]
        if now < self._refused.get(key, 0.0):
            return ""
        under_way = self._reviewing.get(key)
        if under_way is None:
            under_way = asyncio.create_task(self._review(key, token), name="token review")
            self._reviewing[key] = under_way
            under_way.add_done_callback(lambda done: self._ended(key, done))
        # A caller that gives up does not end the review for the others.
        return await asyncio.shield(under_way)

    async def _review(self, key: bytes, token: str) -> str:
        if key not in self._accepted:
            await self._new.acquire()
        self.sent += 1
        spec = {"token": token, "audiences": [self._audience]}
        user = self._user_of(await self._api.create(TOKEN_REVIEWS, "", {"spec": spec}))
        until = self._clock() + TTL_S
        if user:
            put_bounded(self._accepted, key, (user, until), ANSWERS_MAX)
        else:
            self._accepted.pop(key, None)
            put_bounded(self._refused, key, until, ANSWERS_MAX)
        return user

    def _user_of(self, review: Obj) -> str:
        """An API server that does not know audiences returns none: then the token may be meant for
        anybody, and is not accepted.
        """
        status = review.get("status")
        if not isinstance(status, Mapping) or status.get("authenticated") is not True:
            return ""
        audiences, user = status.get("audiences"), status.get("user")
        if not isinstance(audiences, list) or self._audience not in audiences:
            return ""
        name = user.get("username") if isinstance(user, Mapping) else None
        return name if isinstance(name, str) else ""

    def _ended(self, key: bytes, review: "asyncio.Task[str]") -> None:
        self._reviewing.pop(key, None)
        if not review.cancelled():
            review.exception()  # retrieved, so that asyncio does not log it
