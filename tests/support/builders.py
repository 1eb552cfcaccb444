"""Builders of model values and whole states: a test names only what it is about."""

from collections.abc import Mapping

from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.model.ledger import Share, encode_ledger
from extender.model.objects import AdapterPod, AdapterPool, Namespace, Node, StatefulSet, VPod

NS = "knative-eventing"
POOL = f"{NS}/dispatcher"


def a_pool(slots: int = 20, **fields) -> AdapterPool:
    fields = {"name": "dispatcher", "stateful_set": "dispatcher", **fields}
    return AdapterPool(namespace=NS, slots_per_pod=slots, **fields)


def a_stateful_set(replicas: int = 3, start: int = 0, **fields) -> StatefulSet:
    fields = {"name": "dispatcher", **fields}
    return StatefulSet(namespace=NS, replicas=replicas, ordinals_start=start, **fields)


def a_node(name: str = "node-0", zone: str = "z0", **fields) -> Node:
    return Node(name=name, zone=zone, **fields)


def a_pod(
    ordinal: int, ledger: Mapping[str, int | Share] | None = None, *, node: str = "node-0", **fields
) -> AdapterPod:
    shares = {k: v if isinstance(v, Share) else Share(v) for k, v in (ledger or {}).items()}
    fields = {"uid": f"uid-{ordinal}", "owner": "dispatcher", **fields}
    return AdapterPod(
        namespace=NS,
        name=f"dispatcher-{ordinal}",
        pool=POOL,
        ordinal=ordinal,
        node=node,
        ledger=shares,
        ledger_text=encode_ledger(shares) if ledger is not None else None,
        **fields,
    )


def a_vpod(
    name: str = "a", vreplicas: int = 1, placements: Mapping[int, int] | None = None, **fields
) -> VPod:
    return VPod(
        namespace=fields.pop("namespace", "tenant"),
        name=name,
        pool=fields.pop("pool", POOL),
        vreplicas=vreplicas,
        placements={f"dispatcher-{o}": n for o, n in (placements or {}).items()},
        **fields,
    )


class Scene:
    """A ClusterState under construction: one pool on one ready node unless told otherwise."""

    def __init__(
        self, *, replicas: int = 3, slots: int = 20, start: int = 0, **pool_fields
    ) -> None:
        self.state = ClusterState()
        self._objects: dict[tuple[str, str], object] = {}
        self.node(a_node())
        self.stateful_set(replicas, start)
        self.state.adapter_pool_changed(None, a_pool(slots, **pool_fields))

    def node(self, node: Node) -> "Scene":
        self.state.node_changed(self._swap("node", node.name, node), node)
        return self

    def pod(
        self, ordinal: int, ledger: Mapping[str, int | Share] | None = None, **fields
    ) -> "Scene":
        pod = a_pod(ordinal, ledger, **fields)
        self.state.pod_changed(self._swap("pod", pod.name, pod), pod)
        return self

    def no_pod(self, ordinal: int) -> "Scene":
        old = self._swap("pod", f"dispatcher-{ordinal}", None)
        self.state.pod_changed(old, None)
        return self

    def pods(self, *ordinals: int) -> "Scene":
        for ordinal in ordinals:
            self.pod(ordinal)
        return self

    def vpod(
        self,
        name: str = "a",
        vreplicas: int = 1,
        placements: Mapping[int, int] | None = None,
        **fields,
    ) -> "Scene":
        vpod = a_vpod(name, vreplicas, placements, **fields)
        self.state.vpod_changed(self._swap("vpod", name, vpod), vpod)
        return self

    def stateful_set(self, replicas: int, start: int = 0, **fields) -> "Scene":
        new = a_stateful_set(replicas, start, **fields)
        self.state.stateful_set_changed(self._swap("stateful_set", new.name, new), new)
        return self

    def other_stateful_set(self, name: str, **pool_fields) -> "Scene":
        """The pool names another StatefulSet from now on, which is there."""
        self.state.stateful_set_changed(None, a_stateful_set(name=name))
        known = self.pool.adapter_pool
        self.state.adapter_pool_changed(
            known, a_pool(stateful_set=name, generation=2, **pool_fields)
        )
        return self

    def namespace(self, name: str, **labels: str) -> "Scene":
        new = Namespace(name=name, labels=labels)
        self.state.namespace_changed(self._swap("namespace", name, new), new)
        return self

    def no_vpod(self, name: str = "a") -> "Scene":
        self.state.vpod_changed(self._swap("vpod", name, None), None)
        return self

    def reserve(
        self, name: str, ordinal: int, vreplicas: int, *, weight: int = 1, owner: object = "test"
    ) -> "Scene":
        share = {f"dispatcher-{ordinal}": Share(vreplicas, weight)}
        self.state.reserve(owner, POOL, f"tenant/{name}", share, expires_at=30.0)
        return self

    def _swap(self, kind: str, name: str, new):
        old = self._objects.get((kind, name))
        self._objects[(kind, name)] = new
        return old

    @property
    def pool(self) -> PoolState:
        return self.state.pool(POOL)


def nothing_decided(_vpod: str) -> None:
    """As an explanation of each vpod's last decision: there was none."""
