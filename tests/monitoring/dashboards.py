"""What the dashboards show: overview and pools here, the service's inside in ``inside``."""

from tests.monitoring.grafana import Dashboard, Panel, Query, Row, Thresholds
from tests.monitoring.inside import RELIABILITY, VERBS
from tests.monitoring.queries import POOL, RATE, S, largest, quantiles, rate, total


def _number(
    title: str, expr: str, description: str, *, unit: str = "short", thresholds: Thresholds = ()
) -> Panel:
    """One of six beside each other: a number as it now is."""
    return Panel(
        title=title,
        kind="stat",
        unit=unit,
        width=4,
        height=5,
        queries=(Query(expr),),
        description=description,
        thresholds=thresholds,
    )


def _tenants(title: str, name: str, description: str) -> Panel:
    """Slots of each tenant that has series of its own, and of the others."""
    metric = f"{S}_tenant_{name}_slots{{{POOL}}}"
    return Panel(
        title=title,
        width=12,
        stacked=True,
        queries=(Query(f"max by (pool, tenant) ({metric})", "{{pool}} {{tenant}}"),),
        description=description,
    )


OVERVIEW = Dashboard(
    uid="vreplica-overview",
    title="vreplica-scheduler / Overview",
    description="Is everything placed, how fast, and by whom.",
    rows=(
        Row(
            "Now",
            (
                _number(
                    "vreplicas without a place",
                    f"sum(max by (pool) ({S}_pool_pending_vreplicas))",
                    "0 when all that tenants ask for is placed.",
                    thresholds=((1, "orange"),),
                ),
                _number(
                    "vreplicas that nobody serves",
                    f"sum(max by (pool) ({S}_pool_unserved_vreplicas))",
                    "Placed on pods that are not Ready, or terminating, or on a lost node.",
                    thresholds=((1, "red"),),
                ),
                _number(
                    "longest wait",
                    f"max({S}_pending_vpods_oldest_seconds)",
                    "How long the vpod waits that has waited the longest, since its leader leads.",
                    unit="s",
                    thresholds=((60, "orange"), (600, "red")),
                ),
                _number(
                    "overcommitted pods",
                    f"max({S}_overcommitted_pods)",
                    "Pods whose ledger takes more than they have: only after slotsPerPod or "
                    "capacities were lowered, or with a forged ledger.",
                    thresholds=((1, "red"),),
                ),
                _number(
                    "replicas",
                    f"count({S}_build_info)",
                    "Replicas of the service that are scraped.",
                ),
                _number(
                    "Leases that are led",
                    f"sum({S}_leader_election_master_status)",
                    "One, or leaderElection.buckets.",
                ),
            ),
        ),
        Row(
            "Placing",
            (
                Panel(
                    title="attempts a second",
                    unit="ops",
                    queries=(rate(f"{S}_schedule_attempts_total", "result"),),
                    description="Decisions about vpods with their writes, by result.",
                ),
                Panel(
                    title="time until a vpod is placed",
                    unit="s",
                    queries=quantiles(f"{S}_vpod_scheduling_sli_duration_seconds"),
                    description="From when it wanted what it had not, over all attempts; it "
                    "includes waiting for pods.",
                ),
                Panel(
                    title="vpods that wait",
                    stacked=True,
                    queries=(total(f"{S}_pending_vpods", "queue"),),
                    description="By part of the queue; unschedulable: for room, or for a change.",
                ),
                Panel(
                    title="why they wait",
                    stacked=True,
                    queries=(total(f"{S}_unschedulable_vpods", "reason"),),
                    description="The reasons of their Scheduled condition.",
                ),
                Panel(
                    title="vreplicas moved a minute",
                    queries=(rate(f"{S}_moves_total", "reason", in_s=60),),
                    description="Nothing moves without one of these reasons.",
                ),
                Panel(
                    title="hand-overs that time out a minute",
                    queries=(rate(f"{S}_handover_timeouts_total", "step", in_s=60),),
                    description="prepare: an adapter did not get ready, and the move was taken "
                    "back. drain: one did not let go, and its share was taken away.",
                ),
                Panel(
                    title="refusals a second",
                    unit="ops",
                    queries=(rate(f"{S}_refusals_total", "reason"),),
                    description="Nodes, binds and writes refused.",
                ),
            ),
        ),
    ),
)

POOLS = Dashboard(
    uid="vreplica-pools",
    title="vreplica-scheduler / Pools",
    description="Pods, slots and vreplicas of each pool.",
    variables={"pool": (f"{S}_pool_replicas", "pool")},
    rows=(
        Row(
            "Slots",
            (
                Panel(
                    title="used of all slots",
                    unit="percentunit",
                    width=12,
                    queries=(
                        Query(
                            f'max by (pool) ({S}_pool_slots{{state="used", {POOL}}})'
                            f' / max by (pool) ({S}_pool_slots{{state="total", {POOL}}})',
                            "{{pool}}",
                        ),
                    ),
                    description="Taken by placed vreplicas. Over 1: pods are being replaced, or "
                    "are overcommitted.",
                    thresholds=((1, "red"),),
                ),
                Panel(
                    title="free slots",
                    width=12,
                    queries=(largest(f'{S}_pool_slots{{state="free", {POOL}}}', "pool"),),
                    description="On pods that take new vreplicas.",
                ),
                Panel(
                    title="vreplicas without a place",
                    width=12,
                    queries=(largest(f"{S}_pool_pending_vreplicas{{{POOL}}}", "pool"),),
                    description="Waiting for room, for a pod, or for a person: see the vpods' "
                    "conditions.",
                    thresholds=((1, "orange"),),
                ),
                Panel(
                    title="vpods",
                    width=12,
                    queries=(largest(f"{S}_pool_vpods{{{POOL}}}", "pool"),),
                    description="That refer to the pool.",
                ),
                Panel(
                    title="vreplicas that nobody serves",
                    width=12,
                    queries=(largest(f"{S}_pool_unserved_vreplicas{{{POOL}}}", "pool"),),
                    description="Placed on pods that are not Ready, or terminating, or on a lost "
                    "node.",
                    thresholds=((1, "red"),),
                ),
                Panel(
                    title="share of the placed vreplicas that nobody serves",
                    width=12,
                    queries=(
                        Query(
                            f"max by (pool) ({S}_pool_unserved_vreplicas{{{POOL}}} / "
                            f"({S}_pool_unserved_vreplicas{{{POOL}}} + "
                            f"{S}_pool_ready_vreplicas{{{POOL}}}))",
                            "{{pool}}",
                        ),
                    ),
                    unit="percentunit",
                    description="The alerts begin at a twentieth, and at half.",
                    thresholds=((0.05, "orange"), (0.5, "red")),
                ),
                Panel(
                    title="vpods that are not available",
                    width=12,
                    queries=(largest(f"{S}_pool_unavailable_vpods{{{POOL}}}", "pool"),),
                    description="With vreplicas that nobody serves.",
                    thresholds=((1, "red"),),
                ),
            ),
        ),
        Row(
            "Tenants",
            (
                _tenants(
                    "slots that tenants use",
                    "used",
                    "Of pools with tenancy: the tenants that use most, and the others together.",
                ),
                _tenants(
                    "slots that tenants wait for",
                    "waiting",
                    "By quota or for want of room: see the vpods' conditions.",
                ),
                _tenants(
                    "slots that tenants have borrowed",
                    "borrowed",
                    "Beyond their guarantees. Others take them back when they claim their own.",
                ),
                Panel(
                    title="tenants with less than their guarantee",
                    width=12,
                    queries=(largest(f"{S}_pool_tenants_below_guarantee{{{POOL}}}", "pool"),),
                    description="They ask for more than they have.",
                    thresholds=((1, "red"),),
                ),
            ),
        ),
        Row(
            "Pods",
            (
                Panel(
                    title="pods by what they are good for",
                    width=12,
                    stacked=True,
                    queries=(
                        Query(
                            f"sum by (state) (max by (pool, state) ({S}_pool_pods{{{POOL}}}))",
                            "{{state}}",
                        ),
                    ),
                    description="expected: asked for and not created yet; unschedulable: drained, "
                    "not Ready, cordoned.",
                ),
                Panel(
                    title="pods that the StatefulSet is asked for",
                    width=12,
                    queries=(largest(f"{S}_pool_replicas{{{POOL}}}", "pool"),),
                    description="By the autoscaler, or by somebody else.",
                ),
                Panel(
                    title="scalings an hour",
                    width=12,
                    queries=(rate(f"{S}_scalings_total", "direction", in_s=3600),),
                    description="Over all pools. Up and down in turn: the load swings faster than "
                    "scaleDownPeriodSeconds.",
                ),
                Panel(
                    title="moves planned and made a minute",
                    width=12,
                    queries=(
                        Query(f"60 * sum(rate({S}_moves_planned_total[{RATE}]))", "planned"),
                        Query(f"60 * sum(rate({S}_moves_total[{RATE}]))", "made"),
                    ),
                    description="Over all pools, in vreplicas. Planned alone: rebalance.dryRun.",
                ),
                Panel(
                    title="load of the hottest pod, in means",
                    width=12,
                    queries=(largest(f"{S}_pool_load_ratio", "pool"),),
                    description="Of pools that balance load. Moves begin at their target + 0.05.",
                ),
                Panel(
                    title="pools whose loadSource brings nothing",
                    width=12,
                    queries=(largest(f"{S}_pool_load_unavailable", "pool"),),
                    description="1 as the pool's condition LoadUnavailable says why.",
                    thresholds=((1, "red"),),
                ),
            ),
        ),
    ),
)

DASHBOARDS = {"overview": OVERVIEW, "pools": POOLS, "verbs": VERBS, "reliability": RELIABILITY}
