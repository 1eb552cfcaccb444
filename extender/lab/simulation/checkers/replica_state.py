"""The memory of a replica once all is at rest: no reservation is left (I5), and the incremental
state equals a rebuilt one.
"""

from extender.engine.state.cluster_state import ClusterState
from extender.lab.simulation.world.replica import Replica


def state_problems(replica: Replica) -> list[str]:
    """Return the reservations that nobody has dropped, and differences between incremental and
    rebuilt state.
    """
    caches = replica.service.caches
    rebuilt = _rebuilt(replica)
    problems = [
        f"I5: {replica.name} still reserves {claim.reserved} of {key} on {name} for {claim.owner}"
        for state in caches.state.pools.values()
        for key, claims in state.claims_by_vpod.items()
        for name, claim in claims.items()
        if claim.reserved is not None
    ]
    if not problems and caches.state.digest() != rebuilt.digest():
        problems.append(
            f"{replica.name}: incremental {caches.state.digest()} is not {rebuilt.digest()}"
        )
    return problems


def _rebuilt(replica: Replica) -> ClusterState:
    """A state made of all that the replica's caches have."""
    caches = replica.service.caches
    rebuilt = ClusterState(caches.state.profiles)
    for node in caches.nodes.list():
        rebuilt.node_changed(None, node)
    for namespace in caches.namespaces.list():
        rebuilt.namespace_changed(None, namespace)
    for stateful_set in caches.stateful_sets.list():
        rebuilt.stateful_set_changed(None, stateful_set)
    for pool in caches.pools.list():
        rebuilt.adapter_pool_changed(None, pool)
    for quota in caches.quotas.list():
        rebuilt.quota_changed(None, quota)
    for pod in caches.pods.list():
        rebuilt.pod_changed(None, pod)
    for vpod in caches.vpods.list():
        rebuilt.vpod_changed(None, vpod)
    for vpod in replica.service.placer.external_vpods:
        rebuilt.vpod_changed(None, vpod)
    for key, known in caches.state.pools.items():
        # These follow from no object: two are decided by the leader's loops, one comes with time.
        rebuilt.pool(key).set_closed(known.closed, in_doubt=known.in_doubt)
        rebuilt.pool(key).set_abandoned(known.abandoned)
        rebuilt.pool(key).recall_preemption(known.patience, known.preemption_budget)
    return rebuilt
