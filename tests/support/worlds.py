"""``World``: API objects and reservations, fed to a ``ClusterState`` change by change, and the
state's meaning, naively.

``Naive`` recomputes everything that a PoolState keeps by differences from the objects alone, in the
plainest way there is. Strategies draw objects from small ranges, so that they meet: few ordinals,
few vpods, two pools on two StatefulSets.
"""

from collections import Counter
from dataclasses import dataclass, field, replace as _replace

from hypothesis import strategies as st

from extender.engine.placing.plan import Decision
from extender.engine.pods.claims import ROOM_BYTES_MAX, SHARE_BYTES_MAX, TENANT_ROOM_BYTES_MAX
from extender.engine.state.cluster_state import ClusterState
from extender.model.ledger import Share
from extender.model.node_fit import NodeFit, Taint, Toleration
from extender.model.objects import AdapterPod, AdapterPool, Node, StatefulSet, VPod, ordinal_of
from tests.support.builders import NS, POOL, a_node, a_pod, a_pool, a_stateful_set, a_vpod

OTHER = f"{NS}/other"
VPODS = ("a", "b", "c")
DIMENSIONS = ("cpu", "memory")


@dataclass(frozen=True)
class Reservation:
    share: Share
    owner: object
    expires_at: float


@dataclass
class World:
    """What a test holds true. Every setter feeds the change to ``state`` too."""

    state: ClusterState = field(default_factory=ClusterState)
    pools: dict[str, AdapterPool] = field(default_factory=dict)
    stateful_sets: dict[str, StatefulSet] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, AdapterPod] = field(default_factory=dict)
    vpods: dict[str, VPod] = field(default_factory=dict)
    reservations: dict[tuple[str, str, str], Reservation] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    abandoned: dict[str, frozenset[str]] = field(default_factory=dict)

    def close(self, pool: str, closed: int) -> None:
        if pool in self.pools:
            self.closed[pool] = closed
            self.state.pool(pool).set_closed(closed)

    def abandon(self, pool: str, names: frozenset[str]) -> None:
        if pool in self.pools:
            self.abandoned[pool] = names
            self.state.pool(pool).set_abandoned(names)

    def put(self, obj) -> None:
        store, change = self._of(type(obj))
        old = store.get(obj.key)
        store[obj.key] = obj
        change(old, obj)

    def remove(self, kind: type, key: str) -> None:
        store, change = self._of(kind)
        if (old := store.pop(key, None)) is not None:
            change(old, None)
        for known in (self.closed, self.abandoned):
            for pool in [pool for pool in known if pool not in self.state.pools]:
                del known[pool]

    def _of(self, kind: type):
        return {
            AdapterPool: (self.pools, self.state.adapter_pool_changed),
            StatefulSet: (self.stateful_sets, self.state.stateful_set_changed),
            Node: (self.nodes, self.state.node_changed),
            AdapterPod: (self.pods, self.state.pod_changed),
            VPod: (self.vpods, self.state.vpod_changed),
        }[kind]

    def reserve(
        self, owner: object, pool: str, vpod: str, shares: dict[str, Share], expires_at: float
    ) -> None:
        for name, share in shares.items():
            self.reservations[(pool, vpod, name)] = Reservation(share, owner, expires_at)
        self.state.reserve(owner, pool, vpod, shares, expires_at=expires_at)

    def release(self, owner: object, pool: str, vpod: str) -> None:
        for key, known in list(self.reservations.items()):
            if key[:2] == (pool, vpod) and known.owner == owner:
                del self.reservations[key]
        self.state.release(owner, pool, vpod)

    def expire(self, now: float) -> None:
        for key, known in list(self.reservations.items()):
            if known.expires_at <= now:
                del self.reservations[key]
        self.state.expire(now)

    def objects(self) -> list[object]:
        return [
            obj
            for store in (self.nodes, self.stateful_sets, self.pools, self.pods, self.vpods)
            for obj in store.values()
        ]

    def rebuilt(self, objects: list[object] | None = None) -> "World":
        """A new World of the same objects, added in the given order, with the same reservations."""
        world = World()
        for obj in self.objects() if objects is None else objects:
            world.put(obj)
        for (pool, vpod, name), known in self.reservations.items():
            world.reserve(known.owner, pool, vpod, {name: known.share}, known.expires_at)
        for pool, state in self.state.pools.items():
            world.state.pool(pool).set_closed(state.closed)
            world.state.pool(pool).set_abandoned(state.abandoned)
        return world

    def decide(self, decision: Decision) -> None:
        """Reserve a decision, as the placer does before it writes."""
        shares = decision.shares(self.state.pool(decision.pool).decided_of(decision.vpod))
        self.reserve("placer", decision.pool, decision.vpod, shares, 1e9)

    def write(self, decision: Decision) -> None:
        """What is left of a decision once ledgers and status are written: bound pods' ledgers, and
        the status.
        """
        for key, pod in list(self.pods.items()):
            count = decision.target.get(pod.name, 0)
            if pod.pool == decision.pool and pod.node and (count or decision.vpod in pod.ledger):
                ledger = {k: s for k, s in pod.ledger.items() if k != decision.vpod}
                if count:
                    ledger[decision.vpod] = decision.share(count)
                self.put(_replace(self.pods[key], ledger=ledger))
        vpod = self.vpods.get(decision.vpod)
        if vpod is not None:
            self.put(_replace(vpod, placements=dict(decision.target)))
        for known in [k for k in self.reservations if k[1] == decision.vpod]:
            if known in self.reservations:  # one owner's are released together
                self.release(self.reservations[known].owner, known[0], known[1])


def is_controlled(pod: AdapterPod, stateful_set: StatefulSet) -> bool:
    """By UID where both have one, else by name."""
    by_uid = pod.owner_uid and stateful_set.uid
    return pod.owner_uid == stateful_set.uid if by_uid else pod.owner == stateful_set.name


def taken(share: Share, dimension: str) -> int:
    """What a share takes of a dimension."""
    return share.vreplicas * dict(share.amounts).get(dimension, 0)


class Naive:
    """One pool of a World, recomputed from the objects without any incremental bookkeeping."""

    def __init__(self, world: World, key: str) -> None:
        self.world = world
        self.key = key
        self.pool = world.pools.get(key)
        self.taken_by = self._taken_by()
        own = self.pool is not None and not self.taken_by
        self.stateful_set = (
            world.stateful_sets.get(self.pool.stateful_set_key) if self.pool and own else None
        )
        self.pods = {
            pod.name: pod for pod in world.pods.values() if pod.pool == key and self.controls(pod)
        }
        self.vpods = {vpod.key: vpod for vpod in world.vpods.values() if vpod.pool == key}
        self.reserved = {k[1:]: r.share for k, r in world.reservations.items() if k[0] == key}
        self.claimed = {
            *((vpod, pod.name) for pod in self.pods.values() for vpod in self.ledger(pod)),
            *((vpod.key, name) for vpod in self.vpods.values() for name in vpod.placements),
            *self.reserved,
        }
        self.names = {*self.pods, *(name for _, name in self.claimed)}

    def _taken_by(self) -> str:
        """The other pool that has the StatefulSet that this one names, "" for none: narrowed down
        step by step.
        """
        if self.pool is None:
            return ""
        key = self.pool.stateful_set_key
        left = [pool for pool in self.world.pools.values() if pool.stateful_set_key == key]
        known = self.world.stateful_sets.get(key)
        left = [pool for pool in left if known and pool.name == known.template_pool] or left
        left = [pool for pool in left if pool.created_at] or left
        earliest = min(pool.created_at for pool in left)
        first = min(pool.key for pool in left if pool.created_at == earliest)
        return "" if first == self.key else first

    def controls(self, pod: AdapterPod) -> bool:
        stateful_set = self.stateful_set
        if stateful_set is None or is_controlled(pod, stateful_set):
            return True
        former = self.world.stateful_sets.get(f"{pod.namespace}/{pod.owner}")
        return (
            former is not None and former.name != stateful_set.name and is_controlled(pod, former)
        )

    @property
    def slots_per_pod(self) -> int:
        return self.pool.slots_per_pod if self.pool is not None else 0

    @property
    def min_pods_per_vpod(self) -> int:
        return self.pool.min_pods_per_vpod if self.pool is not None else 0

    @staticmethod
    def ledger(pod: AdapterPod | None):
        return pod.ledger if pod is not None and pod.node and not pod.finished else {}

    def sides(self, vpod: str, name: str) -> tuple[Share, Share, Share | None]:
        ledger = self.ledger(self.pods.get(name)).get(vpod, Share(0))
        known = self.vpods.get(vpod)
        count = known.placements.get(name, 0) if known is not None else 0
        return (
            ledger,
            Share(count, known.weight, known.per_vreplica) if known and count else Share(count),
            self.reserved.get((vpod, name)),
        )

    def placed_share(self, vpod: str, name: str) -> Share:
        ledger, status, reserved = self.sides(vpod, name)
        if reserved is not None:
            return reserved
        return ledger if ledger.vreplicas >= status.vreplicas else status

    def held_by(self, vpod: str, name: str) -> int:
        return max(share.slots for share in self.sides(vpod, name) if share is not None)

    def held(self, name: str) -> int:
        return sum(self.held_by(vpod, there) for vpod, there in self.claimed if there == name)

    def placed(self, name: str) -> int:
        return sum(
            self.placed_share(vpod, there).slots for vpod, there in self.claimed if there == name
        )

    def held_amount_by(self, dimension: str, vpod: str, name: str) -> int:
        return max(taken(share, dimension) for share in self.sides(vpod, name) if share is not None)

    def held_amount(self, dimension: str, name: str) -> int:
        return sum(
            self.held_amount_by(dimension, vpod, there)
            for vpod, there in self.claimed
            if there == name
        )

    def placed_amount(self, dimension: str, name: str) -> int:
        return sum(
            taken(self.placed_share(vpod, there), dimension)
            for vpod, there in self.claimed
            if there == name
        )

    def placed_of(self, vpod: str) -> dict[str, int]:
        counts = {
            name: self.placed_share(vpod, name).vreplicas
            for key, name in self.claimed
            if key == vpod
        }
        return {name: count for name, count in counts.items() if count}

    def capacity(self, name: str) -> int:
        pod = self.pods.get(name)
        slots = self.pool.slots_per_pod if self.pool is not None else 0
        return slots if pod is None or pod.slots is None else min(slots, pod.slots)

    def member(self, name: str) -> bool:
        return self.stateful_set is not None and name in {
            f"{self.stateful_set.name}-{o}" for o in self.stateful_set.ordinals
        }

    def schedulable(self, name: str) -> bool:
        pod = self.pods.get(name)
        node = self.world.nodes.get(pod.node) if pod is not None else None
        return (
            pod is not None
            and node is not None
            and node.takes_work
            and self.member(name)
            and name not in self.world.abandoned.get(self.key, ())
            and not (
                pod.finished or pod.deleting or pod.assumed or pod.unschedulable or pod.ledger_error
            )
        )

    def ledger_bytes(self, name: str) -> dict[str, int]:
        """Namespace -> the most that its entries can take, in bytes."""
        found: Counter[str] = Counter()
        for key, there in self.claimed:
            if there == name:
                named = {
                    dimension
                    for dimension in DIMENSIONS
                    if self.held_amount_by(dimension, key, name)
                }
                longer = 2 + sum(len(dimension) + 14 for dimension in named) if named else 0
                found[key.partition("/")[0]] += len(key) + SHARE_BYTES_MAX + longer
        return dict(found)

    def shares(self) -> tuple[int, dict[str, int]]:
        """The pods that are crowded, and those by namespace of whose ledgers it has its share."""
        crowded, spent = 0, dict[str, int]()
        for name in sorted(self.names):
            by_tenant = self.ledger_bytes(name)
            ordinal = ordinal_of(name)
            if (
                not self.indexed(name)
                or ordinal is None
                or sum(by_tenant.values()) <= TENANT_ROOM_BYTES_MAX
            ):
                continue
            crowded |= 1 << ordinal
            for tenant, size in by_tenant.items():
                if size > TENANT_ROOM_BYTES_MAX:
                    spent[tenant] = spent.get(tenant, 0) | 1 << ordinal
        return crowded, dict(sorted(spent.items()))

    def indexed(self, name: str) -> bool:
        return self.stateful_set is not None and name.rpartition("-")[0] == self.stateful_set.name

    def unplaced(self) -> set[str]:
        return {
            vpod.key
            for vpod in self.vpods.values()
            if not vpod.deleting and sum(self.placed_of(vpod.key).values()) < vpod.vreplicas
        }

    def bits_by(self, able: dict[int | None, str], place) -> dict[str, int]:
        found: dict[str, int] = {}
        for ordinal, name in able.items():
            if ordinal is not None:
                where = place(self.world.nodes[self.pods[name].node])
                found[where] = found.get(where, 0) | 1 << ordinal
        return dict(sorted(found.items()))

    def free_by_zone(self, able: dict[int | None, str], room: int) -> dict[str, int]:
        found: Counter[str] = Counter()
        for ordinal, name in able.items():
            if ordinal is not None and room >> ordinal & 1:
                zone = self.world.nodes[self.pods[name].node].zone
                found[zone] += self.capacity(name) - self.held(name)
        return dict(sorted(found.items()))

    def hosting(self) -> list[Node]:
        fit = self.stateful_set.fit if self.stateful_set is not None else None
        return [
            node
            for node in self.world.nodes.values()
            if fit is None or fit.fits(node.name, node.labels, node.taints)
        ]

    def digest(self) -> dict[str, object]:
        """In the form of ``ClusterState.digest``."""
        able = {ordinal_of(name): name for name in self.names if self.schedulable(name)}
        bits = sum(1 << ordinal for ordinal in able if ordinal is not None)
        room = sum(
            1 << ordinal
            for ordinal, name in able.items()
            if ordinal is not None
            and self.held(name) < self.capacity(name)
            and sum(self.ledger_bytes(name).values()) <= ROOM_BYTES_MAX
            and not self.world.closed.get(self.key, 0) >> ordinal & 1
        )
        return {
            "schedulable": bits,
            "room": room,
            "crowded": self.shares()[0],
            "spent": self.shares()[1],
            "zones": self.bits_by(able, lambda node: node.zone),
            "free by zone": self.free_by_zone(able, room),
            "nodes": self.bits_by(able, lambda node: node.name),
            "hosting": {node.name: node.zone for node in self.hosting() if node.takes_work},
            "hosting zones": dict(Counter(node.zone for node in self.hosting())),
            "unplaced": sorted(self.unplaced()),
            "pods": {
                name: (
                    self.held(name),
                    self.placed(name),
                    self.capacity(name),
                    self.schedulable(name),
                    [(d, amount) for d in DIMENSIONS if (amount := self.held_amount(d, name))],
                    [(d, amount) for d in DIMENSIONS if (amount := self.placed_amount(d, name))],
                )
                for name in sorted(self.names)
            },
            "placed": {
                vpod: self.placed_of(vpod) for vpod in sorted({vpod for vpod, _ in self.claimed})
            },
            "taken by": self.taken_by,
        }


# -- what is drawn ---------------------------------------------------------------------------------

ordinals = st.integers(0, 4)
vpod_names = st.sampled_from(VPODS)
amounts = st.sampled_from(
    [(), (), (("cpu", 1),), (("cpu", 2),), (("memory", 3),), (("cpu", 1), ("memory", 4))]
)
limits = st.sampled_from([0, 0, 0, 1, 2, 3])
capacities = st.sampled_from(
    [(), (), (("cpu", 2),), (("cpu", 3), ("memory", 9)), (("cpu", 5), ("memory", 6))]
)
shares = st.builds(Share, st.integers(1, 4), st.integers(1, 2), amounts)
nodes = st.builds(
    a_node,
    st.sampled_from(["node-0", "node-1"]),
    st.sampled_from(["z0", "z1"]),
    cordoned=st.booleans(),
    ready=st.booleans(),
    labels=st.sampled_from([{}, {"disk": "ssd"}]),
    taints=st.sampled_from([(), (Taint("gpu", "", "NoSchedule"),)]),
)
fits = st.sampled_from(
    [
        None,
        None,
        NodeFit(),
        NodeFit((Toleration(operator="Exists"),)),
        NodeFit(selector=(("disk", "ssd"),)),
    ]
)
stateful_sets = st.builds(
    a_stateful_set,
    st.integers(0, 5),
    st.integers(0, 2),
    name=st.sampled_from(["dispatcher", "dispatcher", "other"]),
    fit=fits,
    template_pool=st.sampled_from(["", "dispatcher", "dispatcher", "other"]),
    uid=st.sampled_from(["s1", "s1", "s1", "s2"]),
)
pools = st.builds(
    a_pool,
    st.integers(1, 8),
    name=st.sampled_from(["dispatcher", "dispatcher", "other"]),
    stateful_set=st.sampled_from(["dispatcher", "dispatcher", "other"]),
    min_pods_per_vpod=st.integers(0, 3),
    created_at=st.sampled_from(["", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"]),
    capacities=capacities,
)
ledgers = st.dictionaries(vpod_names.map("tenant/{}".format), shares, max_size=2)


@st.composite
def pods(draw, pool: str | None = None, ordinal: int | None = None) -> AdapterPod:
    pod = a_pod(
        draw(ordinals) if ordinal is None else ordinal,
        draw(ledgers),
        node=draw(st.sampled_from(["node-0", "node-0", "node-0", "node-1", "", "unknown"])),
        uid=draw(st.sampled_from(["u1", "u2"])),
        slots=draw(st.sampled_from([None, None, 3])),
        **{
            flag: draw(st.integers(0, 9)) == 9
            for flag in ("unschedulable", "deleting", "finished", "assumed")
        },
        ledger_error=draw(st.sampled_from([*[""] * 7, "not JSON"])),
    )
    if pool is None:
        pod = _replace(
            pod,
            owner=draw(st.sampled_from(["dispatcher", "dispatcher", "dispatcher", ""])),
            owner_uid=draw(st.sampled_from(["s1", "s1", "s1", "s2", ""])),
        )
    where = pool or draw(st.sampled_from([POOL, POOL, POOL, OTHER]))
    name = pod.name if pool else draw(st.sampled_from([pod.name, pod.name, f"stray-{pod.ordinal}"]))
    return _replace(pod, pool=where, name=name)


@st.composite
def vpods(draw, pool: str | None = None) -> VPod:
    return a_vpod(
        draw(vpod_names),
        draw(st.integers(0, 8)),
        draw(st.dictionaries(ordinals, st.integers(1, 3), max_size=3)),
        pool=pool or draw(st.sampled_from([POOL, POOL, POOL, OTHER, f"{NS}/none"])),
        weight=draw(st.sampled_from([1, 1, 1, 2, 3])),
        deleting=pool is None and draw(st.integers(0, 7)) == 7,
        per_vreplica=draw(amounts),
        max_per_pod=draw(limits),
    )


@st.composite
def worlds(draw, *, weights: bool = True, tidy: bool = False) -> World:
    """One pool of up to 5 pods with up to 3 vpods. ``tidy``: ledgers are what statuses say, and
    nothing is over.
    """
    world = World()
    for name in ("node-0", "node-1"):
        world.put(a_node(name, ready=tidy or draw(st.integers(0, 6)) < 6))
    slots = draw(st.integers(1, 8))
    replicas = draw(st.integers(2, 5))
    world.put(a_stateful_set(replicas, draw(st.integers(0, 1))))
    minimum, most = draw(st.sampled_from([0, 0, 2, 3])), dict(draw(capacities))
    world.put(a_pool(slots, min_pods_per_vpod=minimum, capacities=tuple(sorted(most.items()))))
    for vpod in draw(st.lists(vpods(POOL), max_size=3)):
        world.put(vpod if weights else _replace(vpod, weight=1))
    for ordinal in draw(st.sets(ordinals)):
        world.put(draw(pods(POOL, ordinal)))
    if tidy:
        _tidy(world, slots, most)
    return world


def _tidy(world: World, slots: int, most: dict[str, int]) -> None:
    """Cut statuses to what fits, and make every bound pod's ledger say the same."""
    free: dict[str, int] = {}
    left: dict[str, dict[str, int]] = {}
    ledgers_of: dict[str, dict[str, Share]] = {}
    members = {pod.name: pod for pod in world.pods.values()}
    for vpod in list(world.vpods.values()):
        kept = {}
        for name, count in vpod.placements.items():
            pod = members.get(name)
            room = free.setdefault(
                name, slots if pod is None or pod.slots is None else min(slots, pod.slots)
            )
            fits = min(count, room // vpod.weight)
            beside = left.setdefault(name, dict(most))
            for dimension, amount in vpod.per_vreplica:
                fits = min(fits, beside.get(dimension, 0) // amount)
            if fits:
                for dimension, amount in vpod.per_vreplica:
                    beside[dimension] -= fits * amount
                kept[name] = fits
                free[name] -= fits * vpod.weight
                ledgers_of.setdefault(name, {})[vpod.key] = Share(
                    fits, vpod.weight, vpod.per_vreplica
                )
        world.put(_replace(vpod, placements=kept))
    for pod in list(world.pods.values()):
        world.put(_replace(pod, ledger=ledgers_of.get(pod.name, {}), ledger_error=""))
