"""Who may call the listener for adapters (``server``).

An adapter shows a token that is bound to its pod, as the kubelet mounts it for a projected volume:

.. code-block:: yaml

    volumes:
      - name: vreplica-token
        projected:
          sources: [{serviceAccountToken: {audience: vreplica.dev, path: token}}]

The API server then says in the review which pod the token is for, by name and UID; the pod is in
the namespace of the ServiceAccount. That pod must be an adapter pod that this replica knows. So no
pod speaks for another, although pods share a ServiceAccount. ``adapters.allowedServiceAccounts``
names those who route to adapters: with any token of theirs they may ask for placements, and for
nothing else.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from extender.config.model import AdaptersConfig
from extender.kube.serving.readers import ask_again
from extender.kube.token_review import ReviewLimits, TokenReviews, TokenUser
from extender.model.objects import AdapterPod
from extender.service.http.callers import NOT_ALLOWED, TokenCheck, users_of
from extender.service.http.health import Health
from extender.service.watching.caches import Caches

REVIEWS: Final = ReviewLimits(
    answers_max=5_000, new_qps=100.0, new_burst=200, new_under_way_max=200, new_of_peer_max=100
)
"""Many adapters come at once when a replica starts. Those of one node may have one address."""
_ACCOUNT: Final = "system:serviceaccount:"
PLACEMENTS_ONLY: Final = (
    "accounts in adapters.allowedServiceAccounts may ask for /v1/placements only; an adapter needs "
    "a token that is bound to its pod"
)


@dataclass(frozen=True, slots=True)
class AdapterCaller:
    """Who calls. ``pod``: key of the adapter pod, "" for an account that is only allowed to ask for
    placements; ``uid``: of that pod.
    """

    user: TokenUser
    pod: str = ""
    uid: str = ""

    @property
    def name(self) -> str:
        """By which its streams are counted: a pod, or an account."""
        return self.pod or self.user.name


CALLER: Final = web.RequestKey("caller", AdapterCaller)
"""The key under which a request has its caller."""


class AdapterCallers:
    """Refuses requests of all but adapters and allowed accounts."""

    def __init__(
        self, config: AdaptersConfig, caches: Caches, reviews: TokenReviews, health: Health
    ) -> None:
        self._caches = caches
        self._health = health
        self._audience = config.audience
        self._check = TokenCheck(reviews, audience=config.audience)
        self.reconfigure(config)

    def reconfigure(self, config: AdaptersConfig) -> None:
        """Use this list of accounts from now on."""
        self._allowed = users_of(config.allowed_service_accounts)

    @property
    def refused(self) -> Counter[str]:
        """Refused requests by ``REFUSALS``."""
        return self._check.refused

    @web.middleware
    async def only_allowed(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A middleware: the body of a refused request is not read. Handlers get ``CALLER``."""
        if problem := self._health.refusal():
            # Before the caches are filled, no pod is known.
            return ask_again(problem)
        user = await self._check.user_of(request, lambda user: self.find(user) is not None)
        if isinstance(user, web.Response):
            return user
        caller = self.find(user)
        if caller is None:
            return self._check.refuse(request, NOT_ALLOWED, 403, self._why_not(user))
        request[CALLER] = caller
        return await handler(request)

    def find(self, user: TokenUser) -> AdapterCaller | None:
        """Who the user is now; None if it may not call."""
        pod = self._pod_of(user)
        if pod is not None:
            return AdapterCaller(user, pod.key, pod.uid)
        return AdapterCaller(user) if user.name in self._allowed else None

    def _pod_of(self, user: TokenUser) -> AdapterPod | None:
        key = _pod_key(user)
        pod = self._caches.pods.latest(key) if key else None
        if pod is None or pod.uid != user.pod_uid:
            return None
        # Whoever may create pods may give them a pool's label: only those of its StatefulSet count.
        is_adapter = self._caches.pools.get(pod.pool) is not None and self._caches.state.counts(pod)
        return pod if is_adapter else None

    def _why_not(self, user: TokenUser) -> str:
        key = _pod_key(user)
        if not key:
            return (
                f"the token of {user.name[:400]} is not bound to a pod, and the account is not in "
                f"adapters.allowedServiceAccounts: use the token of a projected volume "
                f"(serviceAccountToken with the audience {self._audience})"
            )
        return (
            f"pod {key[:520]} (UID {user.pod_uid[:64]}) is no adapter pod that is known here: it "
            "needs the label vreplica.dev/pool, and must belong to the StatefulSet of that "
            "AdapterPool; a pod that is new is known within a second"
        )


def _pod_key(user: TokenUser) -> str:
    """The pod to which a token is bound, "" for none."""
    namespace, colon, _ = user.name.removeprefix(_ACCOUNT).partition(":")
    if not user.name.startswith(_ACCOUNT) or not colon or not user.pod_name or not user.pod_uid:
        return ""
    return f"{namespace}/{user.pod_name}"
