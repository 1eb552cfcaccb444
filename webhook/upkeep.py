"""Keeps certificates and registration right while the webhook runs, and logs what is wrong.

It looks once a minute, sooner after a failure, and at another moment than the other replicas. A
problem is logged when it comes, when it changes and when it has gone. If renewals fail until a
fifth of a certificate's life is left, this is logged every few hours until it is renewed.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final, Protocol

from extender.kube.api import ApiError
from extender.kube.serving.tls import ExpiryWarning, validity_of
from webhook.certs import CertificateError, Certificates

_log: Final = logging.getLogger(__name__)
UPKEEP_PERIOD_S: Final = 60.0
FOLLOW_PERIOD_S: Final = 10.0
"""Period of a process that only serves what another one keeps, as for certificate files."""
RETRY_PERIOD_S: Final = 5.0
"""Time until the next try after a failure."""
PERIOD_JITTER: Final = 0.2
"""The fraction of a period by which it is shorter or longer."""
START_ATTEMPTS_MAX: Final = 24
"""Tries to get a first certificate, over two minutes. In this time the API server may come up."""


class Publishes(Protocol):
    """``Publication``: how clients come to know the authorities."""

    async def reconcile(self, certificates: Certificates) -> list[str]:
        """Renew certificates and publish their authorities. Return what is not right, and why.
        Raises ApiError, CertificateError, OSError.
        """
        ...


class Upkeep:
    """Rounds of upkeep. ``now`` is wall-clock time, epoch seconds. ``read_only``: another process
    renews; this one only serves.
    """

    def __init__(
        self,
        certificates: Certificates,
        registration: Publishes,
        *,
        rng: random.Random,
        now: Callable[[], float],
        read_only: bool = False,
    ) -> None:
        self._certificates = certificates
        self._registration = registration
        self._read_only = read_only
        self._rng = rng
        self._now = now
        self._logged_problem = ""
        self._expiry_warning = ExpiryWarning()
        self.failures = 0
        """Rounds that found a problem, for the metric."""

    async def first_certificate(self, stop: asyncio.Event) -> bool:
        """Wait for a certificate to serve. Return False if ``stop`` is set before. Raises
        CertificateError after two minutes.
        """
        problem = "none that can be used"
        for _ in range(START_ATTEMPTS_MAX):
            try:
                await self._certificates.ensure()
            except (ApiError, CertificateError, OSError) as error:
                problem = str(error)
                _log.warning("no good certificate yet: %s", error)
            if self._certificates.served_pem:  # even one that could not be renewed will do at first
                return True
            if await _set_within(stop, RETRY_PERIOD_S):
                return False
        raise CertificateError(f"no certificate after {START_ATTEMPTS_MAX} tries: {problem}")

    async def run(self) -> None:
        """Run rounds for ever."""
        while True:
            well = await self.round()
            period_s = (
                (FOLLOW_PERIOD_S if self._read_only else UPKEEP_PERIOD_S)
                if well
                else RETRY_PERIOD_S
            )
            await asyncio.sleep(period_s * self._rng.uniform(1 - PERIOD_JITTER, 1 + PERIOD_JITTER))

    async def round(self) -> bool:
        """Look at everything once. Return whether all is well."""
        try:
            problem = "; ".join(await self._registration.reconcile(self._certificates))
        except (ApiError, CertificateError, OSError) as error:
            problem = str(error) or type(error).__name__
        if problem != self._logged_problem:
            _log.warning("certificate and registration: %s", problem or "all well again")
        self._logged_problem = problem
        self.failures += bool(problem)
        self._warn_of_the_end(problem)
        return not problem

    def _warn_of_the_end(self, problem: str) -> None:
        try:
            validity = validity_of(self._certificates.served_pem)
        except ValueError:
            return
        if end := self._expiry_warning.due(validity, self._now()):
            why = f": {problem}" if problem else ""
            _log.warning("the serving certificate %s, and has not been renewed%s", end, why)


async def _set_within(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
