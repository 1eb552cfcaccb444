"""The eviction subresource of pods: a delete that asks the admission webhooks and the
PodDisruptionBudgets first.

As in kube-apiserver's ``EvictionREST``: a pod that has no node, has finished or is being deleted
needs no budget. More than one budget for a pod is an error (500). A budget that allows no
disruption refuses with 429. A pod that is not Ready may go if the budget's healthy pods suffice
without it (unhealthyPodEvictionPolicy IfHealthyBudget), or always (AlwaysAllow).

There is no disruption controller here. What a budget allows is counted when an eviction asks, from
the pods that are stored then, and its status is not written.
"""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any, Final

from extender.kube.api import Obj, Preconditions, TooManyRequests
from extender.lab.apiserver.deletion import FINISHED
from extender.lab.apiserver.selectors import label_selector_object, labels_of
from extender.lab.apiserver.statuses import internal
from extender.lab.apiserver.store import Key
from extender.model.reading import condition_in

RETRY_AFTER_S: Final = 10.0


def eviction_object(
    pod: Key, preconditions: Preconditions | None, grace_period_s: int | None, *, dry_run: bool
) -> Obj:
    """Return the Eviction of policy/v1 that webhooks see. ``pod``: namespace and name."""
    options: Obj = {}
    if preconditions is not None:
        wanted = {"uid": preconditions.uid, "resourceVersion": preconditions.resource_version}
        options["preconditions"] = {key: value for key, value in wanted.items() if value}
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    if dry_run:
        options["dryRun"] = ["All"]
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": pod[0], "name": pod[1]},
        "deleteOptions": options,
    }


def check_budgets(pod: Obj, budgets: Iterable[Obj], pods: Iterable[Obj]) -> None:
    """Check whether the pod may be evicted. ``budgets``, ``pods``: those of its namespace.

    Raises TooManyRequests if a budget refuses, ApiError 500 for more than one budget.
    """
    phase = (pod.get("status") or {}).get("phase")
    if (
        not pod["spec"].get("nodeName")
        or phase in FINISHED
        or pod["metadata"].get("deletionTimestamp")
    ):
        return
    matching = [budget for budget in budgets if _selects(budget, pod)]
    if not matching:
        return
    if len(matching) > 1:
        raise internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support."
        )
    budget = matching[0]
    policy = budget["spec"].get("unhealthyPodEvictionPolicy") or "IfHealthyBudget"
    expected = [other for other in pods if _selects(budget, other)]
    healthy = sum(1 for other in expected if _is_healthy(other))
    desired = _desired(budget["spec"], len(expected))
    if not _is_healthy(pod) and (policy == "AlwaysAllow" or healthy >= desired > 0):
        return
    if healthy <= desired:
        name = budget["metadata"]["name"]
        raise TooManyRequests(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget. (The disruption "
            f"budget {name} needs {desired} healthy pods and has {healthy} currently)",
            retry_after_s=RETRY_AFTER_S,
        )


def _selects(budget: Obj, pod: Obj) -> bool:
    selector = budget["spec"].get("selector")
    # policy/v1: an empty selector selects every pod of the namespace, a missing one none.
    return selector is not None and label_selector_object(selector)(labels_of(pod))


def _is_healthy(pod: Obj) -> bool:
    ready = condition_in(pod, "Ready").get("status") == "True"
    return ready and not pod["metadata"].get("deletionTimestamp")


def _desired(spec: Mapping[str, Any], expected: int) -> int:
    """How many pods must stay healthy: minAvailable, or all but maxUnavailable."""
    if "maxUnavailable" in spec:
        return max(0, expected - _scaled(spec["maxUnavailable"], expected))
    return _scaled(spec.get("minAvailable", 1), expected)


def _scaled(value: int | str, of: int) -> int:
    """A number, or a percentage of ``of``, rounded up as Kubernetes does for both fields."""
    if isinstance(value, str) and value.endswith("%"):
        return ceil(int(value[:-1]) * of / 100)
    return int(value)
