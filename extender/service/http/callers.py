"""Who may call the listeners for other pods.

A caller shows a token of a ServiceAccount (``kube.token_review``). ``Callers`` are those of the
listener for controllers (``schedule_server``): accounts that the configuration names. If
``schedule.tls.clientCAFile`` is set, a caller shows a client certificate there instead, as the
extender's clients do. ``adapters.callers`` has those of the other listener. A refusal says what to
change. It repeats no token.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from extender.config.model import ScheduleConfig
from extender.kube.api import ApiError, Forbidden, TooManyRequests
from extender.kube.first_errors import describe_error
from extender.kube.token_review import TokenReviews, TokenUser
from extender.service.http.tls import is_allowed
from extender.service.http.verb_handlers import text_answer

log: Final = logging.getLogger(__name__)

ANSWER_TIMEOUT_S: Final = 3.0
"""For a place in the queue of reviews and the answer. Shorter than what a caller waits."""
RETRY_AFTER_S: Final = 1
LOG_EVERY_S: Final = 60.0
TOKEN_CHARS_MAX: Final = 4096
"""A ServiceAccount's has some 1,200."""
NO_TOKEN, NOT_AUTHENTICATED, NOT_ALLOWED, NOT_REVIEWED = (
    "no token",
    "not authenticated",
    "not allowed",
    "not reviewed",
)
REFUSALS: Final = (NO_TOKEN, NOT_AUTHENTICATED, NOT_ALLOWED, NOT_REVIEWED)
_BEARER: Final = re.compile(rf"[Bb]earer +([A-Za-z0-9._~+/-]{{1,{TOKEN_CHARS_MAX}}}=*)")
_USER: Final = "system:serviceaccount:{}:{}"


def users_of(accounts: Iterable[str]) -> frozenset[str]:
    """The users of ServiceAccounts that are given as ``namespace/name``."""
    return frozenset(_USER.format(*account.split("/", 1)) for account in accounts)


class TokenCheck:
    """Finds out whose token a request shows, and refuses requests."""

    def __init__(self, reviews: TokenReviews, *, audience: str) -> None:
        self._reviews = reviews
        self._audience = audience
        self.refused: Counter[str] = Counter()
        """By ``REFUSALS``."""
        self._log_again_at = 0.0

    async def user_of(
        self, request: web.Request, allowed: Callable[[TokenUser], bool]
    ) -> TokenUser | web.Response:
        """Return the user of the request's token, or the refusal. ``allowed``: see
        ``TokenReviews``.
        """
        audience = self._audience
        bearer = _BEARER.fullmatch(request.headers.get("Authorization", ""))
        if bearer is None:
            needed = f"a token of a ServiceAccount for the audience {audience}"
            return self.refuse(request, NO_TOKEN, 401, f"{needed} is required")
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                user = await self._reviews.user(
                    bearer[1], peer=request.remote or "", allowed=allowed
                )
        except (ApiError, TimeoutError) as error:
            return self._not_reviewed(request, error)
        if not user.name:
            problem = f"the API server does not accept the token for the audience {audience}"
            return self.refuse(request, NOT_AUTHENTICATED, 401, problem)
        return user

    def refuse(self, request: web.Request, reason: str, status: int, text: str) -> web.Response:
        """Count a refusal, by ``REFUSALS``, and return the answer."""
        self.refused[reason] += 1
        headers: Mapping[str, str] = {
            401: {"WWW-Authenticate": "Bearer"},
            503: {"Retry-After": str(RETRY_AFTER_S)},
        }.get(status, {})
        return text_answer(request, status, text, headers)

    def _not_reviewed(self, request: web.Request, error: Exception) -> web.Response:
        match error:
            case TooManyRequests():
                pass  # the metric counts them
            case Forbidden():
                self._log("the service may not create tokenreviews.authentication.k8s.io")
            case TimeoutError():
                self._log(f"the API server did not answer within {ANSWER_TIMEOUT_S:g} s")
            case _:
                self._log(describe_error(error))
        return self.refuse(request, NOT_REVIEWED, 503, "the token could not be reviewed")

    def _log(self, trouble: str) -> None:
        """Once in ``LOG_EVERY_S``: anybody can have tokens reviewed that fail."""
        now = asyncio.get_running_loop().time()
        if now >= self._log_again_at:
            self._log_again_at = now + LOG_EVERY_S
            log.warning("callers' tokens are not reviewed: %s", trouble)


class Callers:
    """Refuses requests of all but the allowed callers."""

    def __init__(self, config: ScheduleConfig, reviews: TokenReviews) -> None:
        self._check = TokenCheck(reviews, audience=config.audience)
        self.reconfigure(config)

    def reconfigure(self, config: ScheduleConfig) -> None:
        """Use these lists of callers from now on."""
        self._config = config
        self._allowed = users_of(config.allowed_service_accounts)

    @property
    def refused(self) -> Counter[str]:
        """Refused requests by ``REFUSALS``."""
        return self._check.refused

    @web.middleware
    async def only_allowed(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A middleware: the body of a refused request is not read."""
        if self._config.tls.client_ca_file:
            refused = self._wrong_certificate(request)
        else:
            refused = await self._wrong_token(request)
        return refused or await handler(request)

    def _wrong_certificate(self, request: web.Request) -> web.Response | None:
        if is_allowed(request.get_extra_info("peercert"), self._config.tls):
            return None
        return self._check.refuse(
            request,
            NOT_ALLOWED,
            403,
            "the name in the client certificate is not in schedule.tls.allowedClients",
        )

    async def _wrong_token(self, request: web.Request) -> web.Response | None:
        user = await self._check.user_of(request, lambda user: user.name in self._allowed)
        if isinstance(user, web.Response):
            return user
        if user.name not in self._allowed:
            problem = f"{user.name[:400]} is not in schedule.allowedServiceAccounts"
            return self._check.refuse(request, NOT_ALLOWED, 403, problem)
        return None
