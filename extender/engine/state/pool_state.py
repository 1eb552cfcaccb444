"""``PoolState``: one pool's part of the state. Changes update it by differences; no decision
rebuilds it.

It adds to ``PoolPods`` what vpods ask for and have. Only ``_claim`` and ``_add_claim`` change the
sums of a pod's claims. ``tenant_room`` has, by tenant, the pods on which that tenant gets no
further ledger entry.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from extender.engine.pods.claims import (
    NOTHING,
    SHARE_BYTES_MAX,
    TENANT_ROOM_BYTES_MAX,
    Claim,
    PodClaims,
    publishing,
    recorded,
    recording,
    reserving,
    tenant_of,
)
from extender.engine.pods.pod_loads import NO_LOADS
from extender.engine.pods.topology import Topology
from extender.engine.policy.profile import DEFAULT_PROFILE, Profile, Ties
from extender.engine.state.patience import Patience
from extender.engine.state.pool_pods import PoolPods
from extender.engine.state.preemption_budget import PreemptionBudget
from extender.engine.state.tenancy import PoolTenancy, Surroundings, TenantUse
from extender.model.amounts import NO_AMOUNTS, Amounts, add_to, amounts_bytes, times
from extender.model.ledger import EMPTY_LEDGER, Ledger, Share, share_of
from extender.model.objects import (
    AdapterPod,
    AdapterPool,
    Node,
    StatefulSet,
    VPod,
    ordinal_of,
    placement_order,
)
from extender.model.tenancy import NotAdmitted


class PoolState(PoolPods):
    """State of the pool ``key``."""

    load = NO_LOADS
    """Set by who leads the pool. It does not change ``revision``: only new placements
    look at it.
    """
    asks_revision = 0
    """Grows whenever what vpods ask for changes. Where they are placed is no part of it."""

    def __init__(self, key: str, topology: Topology | None = None) -> None:
        super().__init__(key, topology)
        self.profile: Profile = DEFAULT_PROFILE
        self.tenancy: PoolTenancy | None = None
        """None if the pool admits everything."""
        self.patience = Patience()
        self._slots_counted_at = -1
        """The revision for which the slots of the pods were counted, while a vpod is overdue."""
        self.on_admitted: Callable[[str, str], None] = _ignore
        """Called with the keys of the pool and of a vpod of which more or fewer vreplicas are
        admitted than before.
        """
        self._vpods: dict[str, VPod] = {}
        self.claims_by_vpod: dict[str, dict[str, Claim]] = {}
        """vpod key -> pod name -> its claim there, the same object as in ``PodClaims.claims``."""
        self._with_pending: dict[str, None] = {}
        self.unserved: dict[str, int] = {}
        """vpod key -> vreplicas that it publishes on pods that are down (see ``availability``);
        never 0.
        """
        self.next_start_ordinal = 0
        """Where ties of the next decision start, with ``Ties.ROUND_ROBIN``."""
        self.watched_sources: frozenset[str] = frozenset()
        """Foreign kinds of which ``vpods`` has all objects. Any other vpod of these
        kinds is gone.
        """

    # -- reading -----------------------------------------------------------------------------------

    @property
    def vpods(self) -> Mapping[str, VPod]:
        """vpod key -> vpod, with the vreplicas that are admitted (``PoolTenancy``)."""
        self.settle()
        return self._vpods

    def rank_of(self, vpod_key: str) -> tuple[int, int]:
        """Priority, and slots of one vreplica; (0, 0) for a vpod that is gone."""
        vpod = self._vpods.get(vpod_key)
        return (vpod.priority, vpod.weight) if vpod is not None else (0, 0)

    @property
    def vpods_with_pending(self) -> Mapping[str, None]:
        """vpods of which more is admitted than is decided for them, in the order in which that was
        noticed.
        """
        self.settle()
        return self._with_pending

    @property
    def has_tenants(self) -> bool:
        """Whether the pool has ``spec.tenancy``. ``tenancy`` is also set if it only preempts."""
        return self.adapter_pool is not None and self.adapter_pool.tenancy is not None

    @property
    def forgettable(self) -> bool:
        """Whether nothing refers to this pool any more."""
        return self.adapter_pool is None and not self.pods and not self._vpods

    def claims_of(self, vpod_key: str) -> Mapping[str, Claim]:
        """Pod name -> claim of one vpod, in no order."""
        return self.claims_by_vpod.get(vpod_key, {})

    def decided_of(self, vpod_key: str) -> dict[str, int]:
        """Pod name -> vreplicas that decisions start from, by ordinal, without zeros."""
        claims = self.claims_by_vpod.get(vpod_key)
        if claims is None:
            return {}
        return {
            name: count
            for name in sorted(claims, key=placement_order)
            if (count := claims[name].decided.vreplicas)
        }

    def decided_vreplicas(self, vpod_key: str) -> int:
        """How many vreplicas decisions about the vpod start from."""
        return sum([claim.decided.vreplicas for claim in self.claims_of(vpod_key).values()])

    def comes_as_a_whole(self, vpod: VPod) -> bool:
        """Whether a vpod has nothing, and gets several vreplicas together or none."""
        return vpod.min_available > 1 and vpod.least > 1 and not self.decided_vreplicas(vpod.key)

    def entries_of(self, vpod_key: str) -> int:
        """Bit set of the pods whose ledgers have an entry of the vpod, or will have one soon."""
        own = 0
        for name in self.claims_by_vpod.get(vpod_key, ()):
            if (ordinal := self.indexed_ordinal(self.pods[name])) is not None:
                own |= 1 << ordinal
        return own

    def room_for(self, vpod_key: str) -> int:
        """``room`` without the pods on which the vpod's namespace has used up its share of the
        ledger. Pods that have an entry of the vpod stay.
        """
        return self.open_to(self.room, vpod_key) if self.tenant_room.spent else self.room

    def open_to(self, ordinals: int, vpod_key: str) -> int:
        """``ordinals`` without the pods that ``room_for`` leaves out."""
        spent = self.tenant_room.spent.get(tenant_of(vpod_key), 0) & ordinals
        return ordinals & ~(spent & ~self.entries_of(vpod_key)) if spent else ordinals

    # -- changes from the API server ---------------------------------------------------------------

    def set_profile(self, profile: Profile) -> None:
        """Place by this profile from now on."""
        self.profile = profile
        self.revision += 1

    def keep_waiting(self, keys: Iterable[str]) -> None:
        """Sort ``vpods_with_pending``: these keys first, in their order, then the others."""
        waiting = self.vpods_with_pending
        ordered = dict.fromkeys(key for key in keys if key in waiting)
        if list(ordered) != list(waiting):
            self._with_pending = ordered | self._with_pending

    def pod_changed(
        self, old: AdapterPod | None, new: AdapterPod | None, node: Node | None
    ) -> None:
        """A pod came, changed or went. The annotation of an unbound pod claims nothing."""
        name = (new or old or _neither()).name
        pod = self._pod(name)
        # The pod is gone or another one: remember its ledger until the ordinal's next pod is bound.
        if old is not None and old.node and old.ledger and (new is None or new.uid != old.uid):
            pod.last_ledger, pod.last_ledger_settled = dict(old.ledger), False
        if new is not None and new.node and not new.assumed:
            pod.last_ledger = {}
        self._set_pod(pod, new, node)
        self._note_unbound(pod)
        self._set_ledger(
            pod, new.ledger if new is not None and new.node and not new.finished else EMPTY_LEDGER
        )
        self._refresh(pod)
        self._forget_if_empty(pod)

    def node_changed(self, pod_name: str, node: Node | None) -> None:
        """The node under a pod changed."""
        if (pod := self.pods.get(pod_name)) is not None:
            self._set_pod(pod, pod.pod, node)
            self._refresh(pod)

    def end_excuse(self, pod_name: str) -> None:
        """That pod has been away for too long: what it holds counts as not served from now on."""
        self.excuse(pod_name, excused=False)

    def excuse(self, pod_name: str, *, excused: bool = True) -> None:
        """Whether what that pod holds counts as served although the pod is away."""
        pod = self.pods.get(pod_name)
        if pod is not None and not pod.serving and pod.excused is not excused:
            pod.excused = excused
            self._note_down(pod)
            self.revision += 1
            pod.revision += 1
            self._refresh_served(pod)

    def set_unserved_shares(
        self, pod_name: str, shares: Mapping[str, int], waiting: frozenset[str]
    ) -> None:
        """The adapter of that pod does not serve so many vreplicas (by vpod). ``waiting``: the
        vpods among them that it is not told to serve yet.
        """
        pod = self.pods.get(pod_name)
        if pod is None or (pod.unserved_shares, pod.waiting_shares) == (shares, waiting):
            return
        changed = {**pod.unserved_shares, **shares}
        pod.unserved_shares, pod.waiting_shares = shares, waiting
        self.revision += 1
        pod.revision += 1
        for key in changed:
            self._count_unserved(key)

    def _set_pod(self, pod: PodClaims, now: AdapterPod | None, node: Node | None) -> None:
        down = pod.down
        pod.stand(now, node)
        self._note_location(pod.name)
        if pod.down is not down:
            self._refresh_served(pod)

    def _refresh_served(self, pod: PodClaims) -> None:
        for key, claim in pod.claims.items():
            if claim.published:
                self._count_unserved(key)

    def _count_unserved(self, key: str) -> None:
        """Count what a vpod publishes on pods that do not serve it."""
        unserved = 0
        if key in self._vpods:
            pods = self.pods
            for name, claim in self.claims_of(key).items():
                unserved += pods[name].unserved_of(key, claim.status.vreplicas)
        if unserved:
            self.unserved[key] = unserved
        else:
            self.unserved.pop(key, None)

    def vpod_changed(self, old: VPod | None, new: VPod | None) -> None:
        """A vpod came, changed or went. What its status publishes is claimed."""
        key = (new or old or _neither_vpod()).key
        if self.tenancy is not None:
            new = self.tenancy.vpod_changed(key, _as_asked(new))
        former = self._vpods.get(key)
        is_gone = former is not None and (new is None or new.uid != former.uid)
        self.asks_revision += _asks(former) != _asks(new)
        if new is None:
            # ``last_ledger`` of its pods stays: a new vpod of the same name may publish that
            # already, unseen by us, and a bind must cover it (I2). If a bind carries too much, that
            # is corrected at once.
            self._vpods.pop(key, None)
        else:
            self._vpods[key] = new
        published = new.placements if new is not None else {}
        weight = new.weight if new is not None else 1
        amounts = new.per_vreplica if new is not None else NO_AMOUNTS
        claims = self.claims_of(key)
        for name in {**claims, **published}:
            count = published.get(name, 0)
            share = share_of(count, weight, amounts) if count else NOTHING
            known = claims.get(name)
            if share == (known.status if known is not None else NOTHING):
                continue
            if known is not None and known.is_confirmed_by(share):
                known.status = share
                self.pods[name].revision += 1
            else:
                self._claim(key, name, publishing(share))
        if old is None or new is None or old.placements != new.placements:
            self._count_unserved(key)
        self._refresh_vpod(key)
        if is_gone and self.patience.forget(key):
            self._resize()

    # -- what is admitted --------------------------------------------------------------------------

    def set_tenancy(self, surroundings: Surroundings) -> None:
        """Follow how the AdapterPool shares its slots, the quotas and the labels of namespaces."""
        pool = self.adapter_pool
        self.revision += 1  # what tenants may have differs, even if nothing else is admitted
        sharing = pool.sharing if pool is not None else None
        if pool is None or pool.preemption is None:
            self.patience = Patience()
        if pool is None or sharing is None:
            if self.tenancy is not None:
                asked, self.tenancy = self.tenancy.asked(), None
                for vpod in asked:
                    self._take_admitted(vpod)
            return
        if self.tenancy is None:
            self.tenancy = PoolTenancy(
                pool, sharing, surroundings, self._used, self.schedulable_count
            )
            for key, vpod in self._vpods.items():
                self.tenancy.vpod_changed(key, vpod)
        self.tenancy.regroup(pool, sharing)
        self._resize()

    def set_stateful_set(self, stateful_set: StatefulSet | None) -> None:
        """See ``PoolPods``. Fair shares depend on how many pods there are."""
        super().set_stateful_set(stateful_set)
        self._resize()

    def reconsider(self, vpod_key: str) -> None:
        """What a vpod uses may have changed: a decision has been given up, or a ledger differs."""
        if self.tenancy is not None:
            self.tenancy.touch(vpod_key)

    def admitted(self, vpod: VPod) -> VPod:
        """Another form of a vpod of the pool, with no more than is admitted of it."""
        known = self.vpods.get(vpod.key)
        if self.tenancy is None or known is None:
            return vpod
        count, left_out = known.vreplicas, known.not_admitted
        if vpod.vreplicas != known.asked:
            count = min(vpod.vreplicas, count)
        if left_out is not None:
            left_out = left_out._replace(vreplicas=vpod.vreplicas - count)
        return replace(vpod, vreplicas=count, not_admitted=left_out)

    def waiting_for_quota(self) -> Mapping[str, NotAdmitted]:
        """Key of each vpod that asks for more than is admitted -> what is not."""
        self.settle()
        return self.tenancy.waiting() if self.tenancy is not None else {}

    def tenant_uses(self) -> list[TenantUse]:
        """What each tenant has, by name; [] if the pool has no ``spec.tenancy``."""
        self.settle()
        return self.tenancy.uses() if self.tenancy is not None and self.has_tenants else []

    @property
    def preemption_budget(self) -> PreemptionBudget | None:
        """What is remembered of slots that were taken; None if the pool admits everything."""
        return self.tenancy.budget if self.tenancy is not None else None

    def recall_preemption(self, patience: Patience, budget: PreemptionBudget | None) -> None:
        """Take over what another state remembers of who has waited, and of what was taken."""
        self.patience = patience.copy()
        if self.tenancy is not None and budget is not None:
            self.tenancy.recall_budget(budget)
        self._resize()

    def _resize(self) -> None:
        if self.tenancy is None or self.adapter_pool is None:
            return
        slots, overdue = slots_most(self.adapter_pool, self.stateful_set), self.patience.overdue
        if overdue:
            # Reservations do not count. Each decision would change what is admitted, and so lead
            # to the next one (seed 600000307).
            there = sum(
                [pod.capacity if pod.schedulable else pod.written for pod in self.pods.values()]
            )
            slots = there if slots is None else min(slots, there)
        self.tenancy.resize(slots)
        self.tenancy.let_preempt(overdue or None)

    def settle(self) -> None:
        """Decide anew what is admitted, if something has changed since."""
        if self.patience.overdue and self._slots_counted_at != self.revision:
            self._slots_counted_at = self.revision
            self._resize()
        if self.tenancy is not None and self.tenancy.is_dirty:
            for vpod in self.tenancy.settle():
                self._take_admitted(vpod)

    def _take_admitted(self, vpod: VPod) -> None:
        """Keep a vpod with what is admitted of it now."""
        key = vpod.key
        known = self._vpods[key]
        self._vpods[key] = vpod
        self.revision += 1
        # One that is admitted wholly may be raised to minPodsPerVPod, with the same vreplicas.
        is_whole = vpod.not_admitted is None
        if known.vreplicas != vpod.vreplicas or (known.not_admitted is None) is not is_whole:
            self.asks_revision += 1
            self._refresh_vpod(key)
            self.on_admitted(self.key, key)

    def _used(self, vpod_key: str) -> int:
        """vreplicas that a vpod publishes, or those decided for it if these are more."""
        # A vpod that comes from another pool still publishes what it has there.
        claims = [
            claim
            for name, claim in self.claims_of(vpod_key).items()
            if claim.ledger.vreplicas or claim.reserved or self.is_member(self.pods[name])
        ]
        return max(
            sum([claim.published for claim in claims]),
            sum([claim.decided.vreplicas for claim in claims]),
        )

    # -- reservations ------------------------------------------------------------------------------

    def reserve(
        self, owner: object, vpod_key: str, shares: Mapping[str, Share], *, expires_at: float
    ) -> None:
        """Reserve a decision's share for each pod, until it is released or ``expires_at`` (s) has
        passed. A share smaller than the present one takes vreplicas away.
        """
        if self.observer is not None:
            self.observer.reserved(self.key, owner, vpod_key, shares, expires_at)
        if self.profile.ties is Ties.ROUND_ROBIN:
            self._take_turns(vpod_key, shares)
        pods = self.pods
        for name, share in shares.items():
            pod = pods.get(name) or self._pod(name)
            if vpod_key in pod.claims:
                self._claim(vpod_key, name, reserving(share, owner, expires_at))
                continue
            # Most claims that are decided are new. Of the pod, only its room depends on them.
            self._add_claim(vpod_key, pod, Claim(share, owner, expires_at))
            if pod.open:
                if not pod.has_room:
                    self._follow_room(pod)
                else:
                    self._count_free(pod)
        self._refresh_vpod(vpod_key)

    def _take_turns(self, vpod_key: str, shares: Mapping[str, Share]) -> None:
        """The ties of the next decision start after the last pod that gets something from this one.
        "Last" in the order that begins where this one's ties started, and goes around.
        """
        claims = self.claims_of(vpod_key)
        given = [
            ordinal
            for name, share in shares.items()
            if (ordinal := ordinal_of(name)) is not None
            and share.vreplicas > (claims[name].decided.vreplicas if name in claims else 0)
        ]
        if given:
            around = [ordinal for ordinal in given if ordinal < self.next_start_ordinal]
            self.next_start_ordinal = max(around or given) + 1

    def release(self, owner: object, vpod_key: str) -> None:
        """Release exactly the reservations of ``owner``. Later ones of another owner stay."""
        if self.observer is not None:
            self.observer.released(self.key, owner, vpod_key)
        claims = self.claims_by_vpod.get(vpod_key, {})
        nothing = reserving(None, None, 0.0)
        for name in list(claims):
            claim = claims.get(name)
            if claim is not None and claim.reserved is not None and claim.owner == owner:
                self._claim(vpod_key, name, nothing)
        self._refresh_vpod(vpod_key)

    def is_reserved(self, vpod_key: str) -> bool:
        """Whether any decision for a vpod is reserved."""
        return any(claim.reserved is not None for claim in self.claims_of(vpod_key).values())

    def owners(self) -> list[tuple[object, str]]:
        """The (owner, vpod key) of all reservations, each once."""
        found = (
            (claim.owner, key)
            for key, claims in self.claims_by_vpod.items()
            for claim in claims.values()
            if claim.reserved is not None
        )
        return list(dict.fromkeys(found))

    def expire(self, now: float) -> list[str]:
        """Drop reservations that no write confirmed in time (``now``: of the clock by which they
        were reserved), and return the keys of their vpods.
        Also forget the last ledgers of ordinals that are gone, and note who has waited for pods for
        too long.
        """
        self._forget_gone(now)
        pool = self.adapter_pool
        if pool is not None and pool.preemption is not None and self.tenancy is not None:
            waiting = {**self.vpods_with_pending, **dict.fromkeys(self.tenancy.waiting())}
            could_take = self.tenancy.beneficiaries(waiting)
            if self.patience.look(could_take, waiting, pool.preemption.patience_s, now):
                self._resize()
            self.tenancy.renew_budget(now)
            self.settle()
        stale = [
            (key, name)
            for key, claims in self.claims_by_vpod.items()
            for name, claim in claims.items()
            if claim.reserved is not None and claim.expires_at <= now
        ]
        for key, name in stale:
            self._claim(key, name, reserving(None, None, 0.0))
            self._refresh_vpod(key)
            self.reconsider(key)
        return sorted({key for key, _ in stale})

    # -- where the sums of claims are derived ------------------------------------------------------

    def _set_ledger(self, pod: PodClaims, ledger: Ledger) -> None:
        """Record what a pod's annotation says. The caller must refresh the pod afterwards."""
        for key, claim in list(pod.claims.items()):
            share = ledger.get(key, NOTHING)
            if share != claim.ledger and self._claim(key, pod.name, recording(share)):
                self._refresh_vpod(key)
                self.reconsider(key)
        claims, vpods = pod.claims, self._vpods
        for key, share in ledger.items():
            if key not in claims and share.vreplicas:
                # A first list brings many new claims. Only the pod's sums depend on such a claim.
                self._add_claim(key, pod, recorded(share))
                if key in vpods:
                    self._refresh_vpod(key)
                    self.reconsider(key)

    def _claim(self, key: str, pod_name: str, change: Callable[[Claim], None]) -> bool:
        """Change a claim, and the sums of its pod. Return whether what is decided has changed."""
        pod = self.pods.get(pod_name) or self._pod(pod_name)
        claim = pod.claims.get(key) or self._add_claim(key, pod, Claim())
        held, placed, amounts = claim.held_slots, claim.decided, claim.held_amounts
        change(claim)
        pod.held += claim.held_slots - held
        if amounts or claim.held_amounts or placed.amounts:
            self._follow_amounts(key, pod, claim, amounts, placed)
        moved = claim.decided != placed
        if moved:
            pod.decided += claim.decided.slots - placed.slots
        if claim.empty:
            self._drop_claim(key, pod)
        self._follow_room(pod)
        if pod.pod is None:
            self._forget_if_empty(pod)
        return moved

    def _add_claim(self, key: str, pod: PodClaims, claim: Claim) -> Claim:
        """Add a claim with at most one of ledger, status and reservation. So what it holds is what
        it places.
        """
        pod.claims[key] = claim
        pod.revision += 1
        pod.held += claim.held_slots
        pod.decided += claim.held_slots
        size = len(key) + SHARE_BYTES_MAX
        if claim.held_amounts:
            add_to(pod.held_amounts, claim.held_amounts)
            add_to(pod.decided_amounts, claim.held_amounts)
            size += amounts_bytes(claim.held_amounts)
        pod.ledger_bytes += size
        if pod.ledger_bytes > TENANT_ROOM_BYTES_MAX:
            self._follow_tenant_room(pod, key, size)
        claims = self.claims_by_vpod.get(key)
        if claims is None:
            self.claims_by_vpod[key] = {pod.name: claim}
        else:
            claims[pod.name] = claim
        return claim

    def _follow_amounts(
        self, key: str, pod: PodClaims, claim: Claim, held: Amounts, placed: Share
    ) -> None:
        """Keep the sums of the dimensions. ``held``, ``placed``: of the claim before its change."""
        add_to(pod.held_amounts, held, -1)
        add_to(pod.held_amounts, claim.held_amounts)
        add_to(pod.decided_amounts, times(placed.amounts, placed.vreplicas), -1)
        add_to(pod.decided_amounts, times(claim.decided.amounts, claim.decided.vreplicas))
        if longer := amounts_bytes(claim.held_amounts) - amounts_bytes(held):
            was_crowded = pod.ledger_bytes > TENANT_ROOM_BYTES_MAX
            pod.ledger_bytes += longer
            if was_crowded or pod.ledger_bytes > TENANT_ROOM_BYTES_MAX:
                self._follow_tenant_room(pod, key, longer)

    def _drop_claim(self, key: str, pod: PodClaims) -> None:
        del pod.claims[key]
        was_crowded = pod.ledger_bytes > TENANT_ROOM_BYTES_MAX
        pod.ledger_bytes -= len(key) + SHARE_BYTES_MAX
        if was_crowded:
            self._follow_tenant_room(pod, key, -len(key) - SHARE_BYTES_MAX)
        claims = self.claims_by_vpod[key]
        del claims[pod.name]
        if not claims:
            del self.claims_by_vpod[key]

    def _follow_tenant_room(self, pod: PodClaims, key: str, change: int) -> None:
        """A ledger that is crowded (see ``TenantRoom``), or was, has got an entry of ``change``
        bytes, or lost it if negative.
        """
        self.tenant_room.entry_changed(pod, self.indexed_ordinal(pod), key, change)

    def _refresh_vpod(self, key: str) -> None:
        self.revision += 1
        vpod = self._vpods.get(key)
        if vpod is not None and not vpod.deleting and self.decided_vreplicas(key) < vpod.vreplicas:
            self._with_pending.setdefault(key)
        else:
            self._with_pending.pop(key, None)


def slots_most(pool: AdapterPool, stateful_set: StatefulSet | None) -> int | None:
    """The slots that a pool can have at most; None if it has as many as it needs, or if nobody
    knows. Pods beyond maxPods count while they are there: a lower maxPods takes nothing away from
    anybody. Nor does a StatefulSet that is not known for a while.
    """
    pods = stateful_set.replicas if stateful_set is not None else 0
    if pool.is_sized_by_others:
        if stateful_set is None:
            return None
        if (announced := pool.scaling.announced_replicas) is not None:
            pods = min(pods, announced)
    elif pool.max_pods is None:
        return None
    else:
        pods = max(pods, pool.max_pods)
    return pods * pool.slots_per_pod


def _ignore(_pool: str, _vpod: str) -> None:
    pass


def _as_asked(vpod: VPod | None) -> VPod | None:
    if vpod is None or vpod.not_admitted is None:
        return vpod
    return replace(vpod, vreplicas=vpod.asked, not_admitted=None)


def _neither() -> AdapterPod:
    raise ValueError("a change needs an old or a new pod")


def _asks(vpod: VPod | None) -> tuple[object, ...]:
    """What a vpod asks for; nothing if there is none, or if it wants none. A caller that wants none
    comes and goes with each of its requests.
    """
    if vpod is None or not vpod.vreplicas:
        return ()
    size = (vpod.vreplicas, vpod.weight, vpod.per_vreplica, vpod.max_per_pod)
    return (vpod.uid, size, vpod.quarantined)


def _neither_vpod() -> VPod:
    raise ValueError("a change needs an old or a new vpod")
