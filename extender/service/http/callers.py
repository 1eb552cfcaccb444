"""Who may call the listener for controllers (``schedule_server``).

A caller shows a token of a ServiceAccount (``kube.token_review``) that the configuration names. If
``schedule.tls.clientCAFile`` is set, it shows a client certificate instead, as the extender's
clients do. A refusal says what to change. It repeats no token.
"""

import asyncio
import logging
import re
from collections import Counter
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from extender.config.model import ScheduleConfig
from extender.kube.api import ApiError, Forbidden, TooManyRequests
from extender.kube.first_errors import describe_error
from extender.kube.token_review import TokenReviews
from extender.service.http.tls import is_allowed
from extender.service.http.verb_handlers import text_answer

log: Final = logging.getLogger(__name__)

REVIEW_TIMEOUT_S: Final = 3.0
"""Shorter than what a caller waits for an answer."""
RETRY_AFTER_S: Final = 1
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


class Callers:
    """Refuses requests of all but the allowed callers."""

    def __init__(self, config: ScheduleConfig, reviews: TokenReviews) -> None:
        self._reviews = reviews
        self.refused: Counter[str] = Counter()
        """By ``REFUSALS``."""
        self._trouble = ""
        self.reconfigure(config)

    def reconfigure(self, config: ScheduleConfig) -> None:
        """Use these lists of callers from now on."""
        self._config = config
        self._allowed = {
            _USER.format(*account.split("/", 1)) for account in config.allowed_service_accounts
        }

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
        return self._refuse(
            request,
            NOT_ALLOWED,
            403,
            "the name in the client certificate is not in schedule.tls.allowedClients",
        )

    async def _wrong_token(self, request: web.Request) -> web.Response | None:
        audience = self._config.audience
        bearer = _BEARER.fullmatch(request.headers.get("Authorization", ""))
        if bearer is None:
            needed = f"a token of a ServiceAccount for the audience {audience}"
            return self._refuse(request, NO_TOKEN, 401, f"{needed} is required")
        try:
            async with asyncio.timeout(REVIEW_TIMEOUT_S):
                user = await self._reviews.user(bearer[1])
        except (ApiError, TimeoutError) as error:
            return self._not_reviewed(request, error)
        self._note("")
        if not user:
            problem = f"the API server does not accept the token for the audience {audience}"
            return self._refuse(request, NOT_AUTHENTICATED, 401, problem)
        if user not in self._allowed:
            problem = f"{user[:400]} is not in schedule.allowedServiceAccounts"
            return self._refuse(request, NOT_ALLOWED, 403, problem)
        return None

    def _not_reviewed(self, request: web.Request, error: Exception) -> web.Response:
        if isinstance(error, Forbidden):
            self._note("the service may not create tokenreviews.authentication.k8s.io")
        elif not isinstance(error, TooManyRequests):
            self._note(describe_error(error) or "no answer in time")
        return self._refuse(request, NOT_REVIEWED, 503, "the token could not be reviewed")

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            log.warning("callers' tokens are not reviewed: %s", trouble)
        self._trouble = trouble

    def _refuse(self, request: web.Request, reason: str, status: int, text: str) -> web.Response:
        self.refused[reason] += 1
        headers = {
            401: {"WWW-Authenticate": "Bearer"},
            503: {"Retry-After": str(RETRY_AFTER_S)},
        }.get(status, {})
        return text_answer(request, status, text, headers)
