"""``KindWatch``: mirrors one foreign kind into a sink while it is served, and says why while it is
not.

.. code-block:: text

    PROBE each version in turn --(served)--> WATCH by a Reflector --(no longer served)--> PROBE
      ^          |                             |
      '- back off -'  none served, forbidden   '-- other errors: the reflector waits them out itself

A foreign kind belongs to another project. Its CRD may come after us, change its versions or go, and
our rights to it are granted separately. None of that may stop the service, so nothing is raised
here. While the kind cannot be read, the sink keeps what it has: an object that we do not see is not
necessarily gone.
"""

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from extender.kube.api import Api, ApiError, NotFound, OutcomeUnknown, Resource
from extender.kube.ratelimit import Backoff, BackoffPolicy
from extender.kube.reflector import Reflector
from extender.kube.sink import Sink
from extender.model.errors import HistoryReplaced

log: Final = logging.getLogger(__name__)

CHECK_PERIOD_S: Final = 5.0
"""How often a running watch is checked."""
PROBES: Final = BackoffPolicy(base_s=1.0, cap_s=30.0)
NOT_SERVED: Final = "NotServed"
NOT_LISTED: Final = "NotListed"


class Problem(NamedTuple):
    """Why a kind is not watched: ``reason`` is one word."""

    reason: str
    message: str


class KindWatch:
    """Mirrors the first of ``versions`` that is served into ``sink``. Run ``run`` in one task."""

    def __init__(
        self, api: Api, versions: Sequence[Resource], sink: Sink, *, rng: random.Random
    ) -> None:
        self.versions = tuple(versions)
        self.resource = self.versions[0]
        """The version that is watched, or was last."""
        self.problem: Problem | None = Problem(NOT_LISTED, "the first list is not in yet")
        self.settled = asyncio.Event()
        """Set once the kind has been listed, or it is known why it cannot be; never cleared."""
        self._api = api
        self._sink = sink
        self._rng = rng
        self._backoff = Backoff(rng, PROBES)
        self._reflector: Reflector | None = None
        self._wanted = 0
        """The list, of this reflector, that was asked for last."""
        self._relisting: set[asyncio.Task[None]] = set()

    @property
    def complete(self) -> bool:
        """Whether the sink has every object. Only then is an object that it lacks gone."""
        reflector = self._reflector
        return self.problem is None and (reflector is None or reflector.relists.has(self._wanted))

    @property
    def last_sync_version(self) -> str:
        """The newest resourceVersion up to which all changes are in the sink; "" while there is no
        watch.
        """
        return self._reflector.last_sync_version if self._reflector is not None else ""

    async def run(self) -> None:
        """Probe and watch until cancelled."""
        while True:
            served = await self._probe(self.versions)
            if served is None:
                await asyncio.sleep(self._backoff.next_s(asyncio.get_running_loop().time()))
                continue
            self._backoff.reset()
            self.resource = served
            await self._watch(served)

    async def relist(self, timeout_s: float) -> bool:
        """Wait, at most ``timeout_s``, until a list that begins now is in the sink. Return whether
        it is. Until it is, ``complete`` is False.
        """
        self.read_again()
        if self._reflector is None:
            return False
        listing = asyncio.create_task(
            self._reflector.relists.wait(self._wanted), name=f"relist {self.resource.plural}"
        )
        self._relisting.add(listing)
        try:
            await asyncio.wait({listing}, timeout=timeout_s)
            return listing.done() and not listing.cancelled()
        finally:
            self._relisting.discard(listing)
            listing.cancel()

    def read_again(self) -> None:
        """List again, if anything is watched. Until the list is in the sink, ``complete`` is
        False.
        """
        if self._reflector is not None:
            self._wanted = self._reflector.request_relist()

    async def _probe(self, versions: Sequence[Resource]) -> Resource | None:
        """The first version that is served; None, with ``problem`` set, if none is or the answer is
        an error.
        """
        for resource in versions:
            try:
                await self._api.list_page(resource, limit=1)
            except NotFound:
                continue
            except ApiError as error:
                self._trouble(_reason(error), str(error))
                return None
            return resource
        names = ", ".join(resource.api_version for resource in versions)
        self._trouble(
            NOT_SERVED, f"{versions[0].plural} are not served in {names}: is the CRD installed?"
        )
        return None

    async def _watch(self, resource: Resource) -> None:
        """Watch until the version is no longer served."""
        reflector = self._reflector = Reflector(self._api, resource, self._sink, rng=self._rng)
        running = asyncio.create_task(reflector.run(), name=f"reflector {resource.plural}")
        listed = asyncio.create_task(reflector.synced.wait())
        try:
            await self._look_after(reflector, running, listed)
        finally:
            self._reflector, self._wanted = None, 0
            # The relists end with this reflector; the next one begins with a list.
            tasks = {running, listed, *self._relisting}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _look_after(
        self,
        reflector: Reflector,
        running: "asyncio.Task[None]",
        listed: "asyncio.Task[Literal[True]]",
    ) -> None:
        errors_seen, lists_wanted = 0, 1
        while True:
            await asyncio.wait(
                {running} if listed.done() else {running, listed},
                timeout=CHECK_PERIOD_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if running.done():
                try:
                    running.result()
                except HistoryReplaced as error:
                    # Our own kinds show whether the API server's history was replaced. This kind
                    # may be served by somebody else.
                    self._trouble("HistoryReplaced", str(error))
                    return
            errors = sum(reflector.errors.values())
            if errors != errors_seen:
                if await self._probe([reflector.resource]) is None:
                    if self.problem is not None and self.problem.reason == NOT_SERVED:
                        return
                    # The watch may have missed events, so the sink is complete only after a new
                    # list. Probe again next time.
                    lists_wanted = reflector.lists + 1
                    continue
                errors_seen = errors
                if reflector.lists < lists_wanted:
                    reflector.request_relist()
            if reflector.lists >= lists_wanted:
                self._well(reflector.resource)

    def _well(self, resource: Resource) -> None:
        if self.problem is not None:
            log.info("%s of %s are watched", resource.plural, resource.api_version)
        self.problem = None
        self.settled.set()

    def _trouble(self, reason: str, message: str) -> None:
        if self.problem is None or self.problem.reason != reason:
            log.warning("%s are not watched, trying again: %s", self.versions[0].plural, message)
        self.problem = Problem(reason, message[:1024])
        self.settled.set()


def _reason(error: ApiError) -> str:
    """One word for a condition: the API server's own if it gives one."""
    if isinstance(error, OutcomeUnknown):
        return "Unreachable"
    return error.reason if error.reason.isalpha() else f"Status{error.status}"
