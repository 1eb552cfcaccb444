"""A pool today, left alone and changed: the three sides of a what-if."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from extender.engine.placing.plan import Decision
from extender.engine.scaling.size import plan_scale
from extender.engine.state.cluster_state import ClusterState
from extender.engine.state.pool_state import PoolState
from extender.engine.state.tenancy import TenantUse
from extender.whatif.candidates import loss_by_zone
from extender.whatif.settling import Settled


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One pool as it is, or as it has settled. ``placed``: vpod -> pod -> vreplicas. ``left``: vpod
    -> vreplicas without a place. ``lost``: zone -> vreplicas that its loss takes, vpods that lose
    all.

    ``wanted``: pods that the autoscaler asks for. ``bound``: names of pods that have a node.
    ``overcommitted``: pod -> ``PodClaims.ledger_excess``.
    ``tenants``: what each has, by name; empty if the pool has no tenancy.
    ``settled``: the decisions that led there; empty for today.
    """

    profile: str
    pods: int
    wanted: int
    bound: frozenset[str]
    free_slots: int
    free_amounts: Mapping[str, int]
    reschedule_after_s: int | None
    overcommitted: Mapping[str, Mapping[str, tuple[int, int]]]
    placed: Mapping[str, Mapping[str, int]]
    left: Mapping[str, int]
    lost: Mapping[str, tuple[int, int]]
    tenants: Mapping[str, TenantUse]
    settled: Settled

    @property
    def unplaced(self) -> int:
        """Vreplicas without a place."""
        return sum(self.left.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One pool: today, left alone and changed. ``held``: ordinals that kube-scheduler refuses for a
    reason not known here, with what it says. ``failed``: names of the pods that fail.
    """

    key: str
    today: Side
    alone: Side
    after: Side
    held: Mapping[int, str]
    failed: frozenset[str] = frozenset()

    @property
    def newly_bound(self) -> int:
        """Pods that have a node after the change, and none today."""
        return len(self.after.bound - self.today.bound)

    @property
    def out_of_service(self) -> tuple[int, int]:
        """Vreplicas on pods that fail, while these are away, and vpods that have no others."""
        vreplicas = vpods = 0
        for placed in self.alone.placed.values():
            lost = sum(count for name, count in placed.items() if name in self.failed)
            vreplicas += lost
            vpods += bool(lost) and lost == sum(placed.values())
        return vreplicas, vpods


def side_of(state: ClusterState, key: str, settled: Settled | None = None) -> Side:
    """The pool as it is, or as it has settled. Today, a vpod with fewer vreplicas placed than it
    asks for waits, even if there is room for it.
    """
    pool = state.pool(key)
    placed = {vpod: pool.decided_of(vpod) for vpod in pool.vpods}
    if settled is None:
        left = {
            name: max(0, vpod.asked - sum(placed[name].values()))
            for name, vpod in pool.vpods.items()
        }
    else:
        left = {vpod: _left_of(decision) for vpod, decision in settled.decisions.items()}
    pods = pool.stateful_set.replicas if pool.stateful_set is not None else 0
    plan = plan_scale(pool, partial(state.selects, pool.key))
    return Side(
        profile=pool.profile.name,
        pods=pods,
        wanted=plan.wanted if plan is not None else pods,
        bound=frozenset(member.name for member in pool.members() if member.bound),
        free_slots=pool.free_slots(),
        free_amounts=pool.free_amounts(),
        reschedule_after_s=pool.adapter_pool.reschedule_after_s
        if pool.adapter_pool is not None
        else None,
        overcommitted={pod.name: pod.ledger_excess for pod in pool.overcommitted()},
        placed=placed,
        left=left,
        lost=_losses(pool),
        tenants={use.tenant: use for use in pool.tenant_uses()},
        settled=settled or Settled(),
    )


def _left_of(decision: Decision) -> int:
    """Vreplicas without a place, and those that the pool's tenancy does not admit."""
    return decision.pending + max(0, decision.explanation.asked - decision.explanation.wanted)


def _losses(pool: PoolState) -> dict[str, tuple[int, int]]:
    losses: dict[str, tuple[int, int]] = {}
    for key in pool.vpods:
        placed = pool.decided_of(key)
        total = sum(placed.values())
        for zone, count in loss_by_zone(pool, placed).items():
            lost, vpods = losses.get(zone, (0, 0))
            losses[zone] = (lost + count, vpods + (count == total))
    return losses
