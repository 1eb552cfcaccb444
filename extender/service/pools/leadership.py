"""``Leadership``: which pools this replica may act for, and what is known of their former leaders.

There is one Lease for all pools, or one per bucket of them (``leaderElection.buckets``,
``model.bucket``), so that replicas share the pools. All questions about leading name a pool. A
writer asks ``leads`` right before each write.

**Replicas with different numbers of buckets.** While a new number is rolled out, replicas split the
pools in different ways. All of them compete for the first bucket's Lease, and it says the number of
its holder. A replica leads by the Leases of other buckets only while the first one says the
replica's own number, as read less than a renew deadline ago. A replica that takes the first Lease
from a holder with another number writes 0 on it, by which nobody leads. After a lease duration it
writes its own number and leads. So no pool has two leaders.

**Sharing.** Every replica competes for every bucket, so the first replica gets them all. A replica
that has less than another asks for one of the other's buckets by an annotation on the bucket's
Lease. The holder stops its loops, gives the Lease up and leaves it to the one that asked. While a
bucket changes hands, for some seconds, nobody decides for its pools. This moves no vreplicas.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Final

from extender.config.model import Config, LeaderElectionConfig, Mode
from extender.kube.api import Api, ApiError
from extender.kube.leader import LeaderElector
from extender.kube.lease import LeaseConfig
from extender.kube.seen_lease import Candidacy
from extender.model.bucket import WHOLE, Bucket, bucket_of, bucket_to_ask_for, may_give, weights_of
from extender.service.placing.ledger_confirmations import UNDER_WAY_S
from extender.service.watching.caches import Caches

log: Final = logging.getLogger(__name__)

SHARE_PERIOD_S: Final = 5.0
"""At most one bucket is asked for in this time."""
SHARE_AFTER_S: Final = 15.0
"""None is asked for sooner after the start: while replicas are replaced, shares change with
each.
"""

Lead = Callable[[Bucket], Awaitable[None]]


class Leadership:
    """For one replica. In shadow mode it never leads, even if it holds Leases. ``now``: epoch
    seconds.
    """

    def __init__(  # noqa: PLR0913 (each is a different collaborator)
        self,
        api: Api,
        caches: Caches,
        config: Config,
        *,
        identity: str,
        first_version: Callable[[], str],
        now: Callable[[], float],
        rng: random.Random,
    ) -> None:
        """``first_version``: returns the resourceVersion of this replica's first list."""
        election = config.leader_election
        self.identity = identity
        self._first_version = first_version
        self.another_has_led: Callable[[Bucket], None] = lambda _bucket: None
        """Called if another replica has, or may have, led a bucket since this one did: as soon as
        that is seen, and before this replica leads the bucket again.
        """
        self._caches = caches
        self._never = config.mode is Mode.SHADOW
        self._total = election.buckets if election.leader_elect else 1
        self._now = now
        self._lease_name = election.resource_name
        self._renew_deadline_s = election.renew_deadline_s
        self._always = False
        self._touched: dict[int, bool] = {}
        """Bucket -> whether anything was placed there when this replica first led it."""
        self._acting: set[int] = set()
        """Buckets whose loops run, with all earlier writes in the caches."""
        self._left: set[int] = set()
        """Buckets that this replica has led, and no other since, as far as it knows."""
        self.electors: list[LeaderElector] = []
        if election.leader_elect:
            self.electors = [
                self.elector(api, election, Bucket(index, self._total), now=now, rng=rng)
                for index in range(self._total)
            ]

    def elector(
        self,
        api: Api,
        config: LeaderElectionConfig,
        bucket: Bucket,
        *,
        now: Callable[[], float],
        rng: random.Random,
    ) -> LeaderElector:
        """The elector of one bucket."""
        lease = LeaseConfig(
            namespace=config.resource_namespace,
            name=bucket.lease_name(config.resource_name),
            duration_s=config.lease_duration_s,
            renew_deadline_s=config.renew_deadline_s,
            retry_period_s=config.retry_period_s,
        )
        return LeaderElector(
            api,
            lease,
            identity=self.identity,
            now=now,
            rng=rng,
            candidacy=Candidacy(
                nothing_written=lambda: not self._is_touched(bucket),
                first_version=self._first_version,
                may_lead=self._others_count_alike if bucket.index else lambda: True,
                yields_to=partial(self._yields, bucket.index),
                on_other_writer=partial(self._another_has_led, bucket),
                buckets=1 if bucket.index else bucket.total,
            ),
        )

    # -- queries -----------------------------------------------------------------------------------

    def leads(self, pool: str) -> bool:
        """Whether this replica may act as leader of the pool now."""
        if self._never:
            return False
        if not self.electors:
            return self._always
        return self._leads_bucket(self._index(pool))

    def acts(self, pool: str) -> bool:
        """Whether it leads the pool and its caches have what was written before. Only then may it
        decide for others.
        """
        return self.leads(pool) and self._index(pool) in self._acting

    def leading(self) -> bool:
        """Whether it leads any bucket."""
        return bool(self.buckets_led())

    def buckets_led(self) -> list[Bucket]:
        """The buckets that it may act for now."""
        if self._never:
            return []
        if not self.electors:
            return [WHOLE] if self._always else []
        return [
            Bucket(index, self._total) for index in range(self._total) if self._leads_bucket(index)
        ]

    def has_begun(self) -> bool:
        """Whether it has ever begun to act for a pool, with all earlier writes in the caches."""
        return self._always or bool(self._touched)

    def leads_since(self, pool: str) -> float:
        """When it began to lead the pool: the event loop's time, seconds."""
        return self.electors[self._index(pool)].acts_since if self.electors else float("-inf")

    def leader(self, pool: str) -> str:
        """Who leads the pool, as far as this replica knows; "" for nobody."""
        return self.electors[self._index(pool)].leader_identity if self.electors else self.identity

    def no_predecessor_writes(self, pool: str) -> bool:
        """Whether every write of another leader of the pool has arrived or never will. Only then
        may ledgers be lowered.
        """
        if not self.electors:
            return True
        elector = self.electors[self._index(pool)]
        if self.never_led_by_others(pool) and elector.transitions == 1:
            return True
        return asyncio.get_running_loop().time() >= elector.acts_since + UNDER_WAY_S

    def never_led_by_others(self, pool: str) -> bool:
        """Whether no other process has ever led the pool, so that none can have sent a write
        unknown here.

        Without leader election this replica is the only one by configuration; nothing is known of
        processes before it. In shadow mode nothing is bound.
        """
        if self._never:
            return True
        if not self.leads(pool):
            return False
        if not self.electors:
            return True
        # Only the first bucket's Lease can tell: with another number of buckets, another Lease had
        # the pools of later buckets.
        index = self._index(pool)
        return (
            not index
            and self.electors[0].seen.never_held_by_others
            and not self._touched.get(0, True)
        )

    def lease_name(self, bucket: Bucket) -> str:
        """The name of a bucket's Lease."""
        return bucket.lease_name(self._lease_name)

    def describe(self) -> list[dict[str, object]]:
        """Each bucket's Lease, for ``/state.json``."""
        return [
            {
                "lease": elector.lease_name,
                "leader": elector.leader_identity,
                "leading": self._leads_bucket(index),
            }
            for index, elector in enumerate(self.electors)
        ]

    # -- leading -----------------------------------------------------------------------------------

    def run(self, lead: Lead) -> Coroutine[None, None, None]:
        """Compete, and run ``lead`` for each bucket while this replica leads it, until cancelled.
        Raises LeadStuck, and what ``lead`` raises.

        Without leader election, this replica leads from now on.
        """
        self._always = not self.electors
        return self._run(lead)

    async def _run(self, lead: Lead) -> None:
        if not self.electors:
            await lead(WHOLE)
            return
        if self._total == 1:
            await self.electors[0].run(partial(self._lead, WHOLE, lead))
            return
        async with asyncio.TaskGroup() as tasks:
            for index, elector in enumerate(self.electors):
                bucket = Bucket(index, self._total)
                tasks.create_task(
                    elector.run(partial(self._lead, bucket, lead)), name=f"bucket {index}"
                )
            tasks.create_task(self._share(), name="bucket sharing")

    async def _lead(self, bucket: Bucket, lead: Lead) -> None:
        elector = self.electors[bucket.index]
        if (wait_s := elector.acts_since - asyncio.get_running_loop().time()) > 0.0:
            await asyncio.sleep(wait_s)
        await lead(bucket)

    def began(self, bucket: Bucket) -> None:
        """Begin to act for the bucket: the caches have what was written before."""
        self._acting.add(bucket.index)
        self._left.discard(bucket.index)
        if bucket.index not in self._touched:
            self._touched[bucket.index] = self._is_touched(bucket)

    def ended(self, bucket: Bucket) -> None:
        """The bucket's loops are about to end."""
        self._acting.discard(bucket.index)
        self._left.add(bucket.index)

    def _another_has_led(self, bucket: Bucket) -> None:
        if bucket.index in self._left:
            self._left.discard(bucket.index)
            self.another_has_led(bucket)

    def _leads_bucket(self, index: int) -> bool:
        elector = self.electors[index]
        return elector.still_leading() and asyncio.get_running_loop().time() >= elector.acts_since

    def _index(self, pool: str) -> int:
        return bucket_of(pool, self._total) if self._total > 1 else 0

    def _is_touched(self, bucket: Bucket) -> bool:
        """Whether anything is placed in the bucket's pools."""
        vpods, pods = self._caches.vpods.list(), self._caches.pods.list()
        return any(vpod.placements and bucket.has(vpod.pool) for vpod in vpods) or any(
            pod.ledger and bucket.has(pod.pool) for pod in pods
        )

    def _others_count_alike(self) -> bool:
        """Whether the first bucket's Lease says this replica's number of buckets, as read less than
        a renew deadline ago.

        With that limit, loops have ended before a replica with another number begins.
        """
        first = self.electors[0]
        now = (asyncio.get_running_loop().time(), self._now())
        is_recent = all(
            at < read + self._renew_deadline_s
            for at, read in zip(now, first.seen.read_at, strict=True)
        )
        return is_recent and first.seen.announced_buckets == self._total

    # -- sharing -----------------------------------------------------------------------------------

    def _holders(self) -> list[str]:
        return [
            self.identity if elector.is_leader else _other(elector.leader_identity, self.identity)
            for elector in self.electors
        ]

    def _weights(self) -> list[int]:
        return weights_of([pool.key for pool in self._caches.pools.list()], self._total)

    def _yields(self, index: int, to: str) -> bool:
        return self._total > 1 and may_give(self._holders(), self._weights(), index, to)

    async def _share(self) -> None:
        await asyncio.sleep(SHARE_AFTER_S)
        while True:
            await asyncio.sleep(SHARE_PERIOD_S)
            index = bucket_to_ask_for(self._holders(), self._weights(), self.identity)
            if index is None or not self._others_count_alike():
                continue
            try:
                await self.electors[index].ask()
            except ApiError as error:
                log.info("bucket %d was not asked for, trying again: %s", index, error)


def _other(holder: str, me: str) -> str:
    """The holder, unless it is this replica: its own name on a Lease by which it does not lead
    counts as nobody.
    """
    return "" if holder == me else holder
