"""Checks of ``extender.json``: what kube-scheduler does with extenders' configuration and answers.

``http`` cases run the real client over a real socket against a server that answers as the case
says. All other kinds run the scheduler's own functions with extenders that behave as upstream's
FakeExtender.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from extender.config.kube_scheduler import ExtenderConfig, ManagedResource, validate_extenders
from extender.lab.scheduler.algorithm import (
    FitError,
    SchedulingAlgorithm,
    SchedulingError,
    extenders_binding,
    find_nodes_that_pass_extenders,
    prioritize_nodes,
)
from extender.lab.scheduler.extender_client import (
    ExtenderError,
    HTTPExtender,
    Victims,
    build_extenders,
    to_meta_victims,
)
from extender.lab.scheduler.framework import CycleState, NodeStatuses, Profile
from extender.lab.scheduler.listers import Listers
from extender.lab.scheduler.predicates import NodeResourcesFit
from extender.lab.scheduler.preemption import Preemptor, call_extenders
from extender.lab.scheduler.select_host import at_random
from extender.lab.scheduler.types import Code, PodInfo, Status
from tests.conformance.extender_fakes import (
    FakeExtender,
    Outcome,
    a_node,
    a_pod,
    a_queue,
    a_snapshot,
    described,
    differs,
    fake_extenders,
    fake_filters,
    fake_scores,
    first,
)
from tests.conformance.extender_http_cases import check_http
from tests.conformance.extender_integration_cases import check_integration
from tests.conformance.result import Case, Check

# Kinds


def _definitions(case: Case) -> Outcome:
    known = {"true", "false", "error", "node1", "node2"}
    unknown = set(case.get("predicates", ())) - known
    return f"unknown predicates {sorted(unknown)}" if unknown else None


async def _schedule_pod(case: Case) -> Outcome:
    expected = case["expected"]
    select_host = at_random(random.Random(case["id"]))
    algorithm = SchedulingAlgorithm(fake_extenders(case), a_queue(), select_host)
    profile = Profile(fake_filters(case), fake_scores(case))
    snapshot = a_snapshot([a_node(name) for name in case["nodes"]])
    pod = a_pod("test-filter")
    try:
        result = await algorithm.schedule_pod(profile, CycleState(), pod, snapshot)
    except FitError as error:
        return first(
            differs("error", expected["error"], True),
            differs("statuses", expected["statuses"], described(error.diagnosis.statuses))
            if "statuses" in expected
            else None,
            differs(
                "unschedulable plugins",
                set(expected["unschedulable_plugins"]),
                error.diagnosis.refused_by,
            )
            if "unschedulable_plugins" in expected
            else None,
        )
    except SchedulingError:
        return differs("error", expected["error"], True)
    return first(
        differs("error", expected["error"], False),
        differs("suggested host", expected.get("suggested_host"), result.node),
        differs("evaluated nodes", expected.get("evaluated_nodes"), result.evaluated_nodes),
        differs("feasible nodes", expected.get("feasible_nodes"), result.feasible_nodes),
    )


def _is_interested(case: Case) -> Outcome:
    managed = tuple(ManagedResource(name) for name in case["managed_resources"])
    extender = HTTPExtender(ExtenderConfig(managed_resources=managed), _no_transport)
    spec: dict[str, Any] = {
        key: [
            {
                "name": f"c{index}",
                "resources": {k: v for k, v in c.items() if k in {"requests", "limits"}},
            }
            for index, c in enumerate(case["pod"].get(source, ()))
        ]
        for key, source in (
            ("containers", "containers"),
            ("initContainers", "initContainers"),
            ("initContainers", "init_containers"),
        )
        if case["pod"].get(source)
    }
    return differs("interested", case["expected"], extender.is_interested(a_pod(**spec)))


async def _no_transport(_url: str, _body: bytes, _timeout_s: float) -> tuple[int, bytes]:
    raise AssertionError("this case must not call the extender")


def _to_meta_victims(case: Case) -> Outcome:
    victims = {
        node: Victims(
            tuple(a_pod(p["name"], uid=p["uid"]) for p in entry["pods"]), entry["numPDBViolations"]
        )
        for node, entry in case["input"].items()
    }
    expected = {
        node: {
            "Pods": [{"UID": pod["uid"]} for pod in entry["pods"]],
            "NumPDBViolations": entry["numPDBViolations"],
        }
        for node, entry in case["expected"].items()
    }
    return differs("meta victims", expected, to_meta_victims(victims))


def _to_victims(case: Case) -> Outcome:
    expected = case["expected"]
    names = {
        pod["uid"]: pod.get("name", "")
        for entry in (expected.get("victims") or {}).values()
        for pod in entry["pods"]
    }
    pods = [
        a_pod(names.get(uid) or uid, uid=uid, node=node)
        for node, uids in case["node_pods"].items()
        for uid in uids
    ]
    snapshot = a_snapshot([a_node(name) for name in case["node_pods"]], pods)
    answer = {
        node: {
            "Pods": [{"UID": pod["uid"]} for pod in entry["pods"]],
            "NumPDBViolations": entry["numPDBViolations"],
        }
        for node, entry in case["input"].items()
    }
    extender = HTTPExtender(ExtenderConfig(preempt_verb="preempt"), _no_transport)
    try:
        victims = extender.to_victims(answer, snapshot)
    except ExtenderError as error:
        return None if expected["error"] else f"unexpected error: {error}"
    got = {
        node: {
            "pods": [{"name": pod.name, "uid": pod.uid} for pod in entry.pods],
            "numPDBViolations": entry.pdb_violations,
        }
        for node, entry in victims.items()
    }
    return first(
        differs("error", expected["error"], False), differs("victims", expected["victims"], got)
    )


async def _filter_chain(case: Case) -> Outcome:
    expected = case["expected"]
    absent = case["absent_nodes_status"]
    statuses = NodeStatuses(absent=_status(absent))
    for node, status in case["statuses_before"].items():
        statuses.explicit[node] = _status(status)
    try:
        nodes = await find_nodes_that_pass_extenders(
            fake_extenders(case), a_pod(), [a_node(name) for name in case["nodes"]], statuses
        )
    except ExtenderError as error:
        return None if expected["error"] else f"unexpected error: {error}"
    return first(
        differs("error", expected["error"], False),
        differs("nodes", expected["nodes"], [node.name for node in nodes]),
        differs("statuses", expected["statuses"], described(statuses)),
    )


def _status(raw: Mapping[str, str]) -> Status:
    return Status(next(code for code in Code if code.label == raw["code"]), (raw["message"],))


async def _bind(case: Case) -> Outcome:
    expected = case["expected"]
    fakes = [FakeExtender(raw) for raw in case["extenders"]]
    failed = False
    bound = False
    try:
        bound = await extenders_binding(fakes, a_pod(case["pod"]), "node1")
    except ExtenderError:
        failed = True
    by = next((index for index, fake in enumerate(fakes) if fake.bound), None)
    return first(
        differs("error", expected["error"], failed),
        differs("bound by extender", expected["bound_by_extender_index"], by),
        differs("bound by default", expected["bound_by_default"], not bound and not failed),
    )


async def _prioritize(case: Case) -> Outcome:
    nodes = [a_node(name, {"cpu": "1", "memory": "1Gi"}) for name in case["nodes"]]
    profile = Profile([], fake_scores(case))
    scores = await prioritize_nodes(
        fake_extenders(case), profile, CycleState(), a_pod(), nodes, a_snapshot(nodes)
    )
    got = {score.name: score for score in scores}
    for name, expected in case["expected"].items():
        # A plugin that skips the pod has no score, which adds up as 0.
        sources = {source: got[name].scores.get(source, 0) for source in expected["scores"]}
        problem = first(
            differs(f"total of {name}", expected["total"], got[name].total),
            differs(f"scores of {name}", expected["scores"], sources),
        )
        if problem:
            return problem
    return None


async def _preempt_chain(case: Case) -> Outcome:
    candidates = {
        raw["node"]: Victims(tuple(a_pod(name, node=raw["node"]) for name in raw["victims"]))
        for raw in case["candidates"]
    }
    snapshot = a_snapshot([a_node(name) for name in candidates])
    status: dict[str, str] | None = None
    result: dict[str, Victims] = {}
    try:
        result = await call_extenders(fake_extenders(case), a_pod(), candidates, snapshot)
    except ExtenderError as error:
        status = {"code": "Error", "message": str(error)}
    got = [
        {"node": node, "victims": [pod.name for pod in entry.pods]}
        for node, entry in result.items()
    ]
    return first(
        differs("status", case["expected"]["status"], status),
        differs("candidates", case["expected"]["candidates"], got),
    )


def _sized(raw: Mapping[str, Any]) -> PodInfo:
    return a_pod(
        raw["name"],
        node=raw.get("node", ""),
        priority=raw.get("priority", 0),
        preemptionPolicy=raw.get("preemptionPolicy", ""),
        containers=[{"name": "c", "resources": {"requests": raw.get("requests", {})}}],
    )


async def _preempt(case: Case) -> Outcome:
    nodes = [a_node(name, case["node_capacity"]) for name in case["nodes"]]
    snapshot = a_snapshot(nodes, [_sized(raw) for raw in case["pods"]])
    preemptor = Preemptor(fake_extenders(case), a_queue(), Listers(), random.Random(case["id"]))
    profile = Profile([NodeResourcesFit()], [])
    statuses = NodeStatuses({name: Status(Code.UNSCHEDULABLE) for name in case["nodes"]})
    found = await preemptor.preempt(profile, CycleState(), _sized(case["pod"]), statuses, snapshot)
    expected = case["expected"]
    node = found.node if found.status is None else None
    return first(
        differs("nominated node", expected["nominated_node"], node),
        differs(
            "preempted pods",
            sorted(expected["preempted_pods"]),
            sorted(pod.name for pod in found.victims.pods),
        )
        if "preempted_pods" in expected
        else None,
        differs(
            "status", expected["status"], found.status.code.label if found.status else "Success"
        )
        if "status" in expected
        else None,
    )


def _create(case: Case) -> Outcome:
    configs = [ExtenderConfig(url_prefix=raw["URLPrefix"]) for raw in case["extenders"]]
    names = [extender.name for extender in build_extenders(configs, _no_transport)]
    return differs("extender names", case["expected"]["extender_names"], names)


def _validate(case: Case) -> Outcome:
    configs = tuple(
        ExtenderConfig(
            url_prefix=raw.get("URLPrefix", ""),
            filter_verb=raw.get("FilterVerb", ""),
            prioritize_verb=raw.get("PrioritizeVerb", ""),
            preempt_verb=raw.get("PreemptVerb", ""),
            bind_verb=raw.get("BindVerb", ""),
            weight=raw.get("Weight", 0),
            managed_resources=tuple(
                ManagedResource(resource["Name"], resource.get("IgnoredByScheduler", False))
                for resource in raw.get("ManagedResources") or ()
            ),
        )
        for raw in case["extenders"]
    )
    errors = [
        {"type": error.type, "field": error.field, "detail": error.detail}
        for error in validate_extenders(configs)
    ]
    return first(
        differs("errors", case["expected"]["errors"], errors),
        differs("valid", case["expected"]["valid"], not errors),
    )


_SYNC: Mapping[str, Callable[[Case], Outcome]] = {
    "definitions": _definitions,
    "is_interested": _is_interested,
    "to_meta_victims": _to_meta_victims,
    "to_victims": _to_victims,
    "create": _create,
    "validate": _validate,
}
_ASYNC: Mapping[str, Callable[[Case], Awaitable[Outcome]]] = {
    "schedule_pod": _schedule_pod,
    "filter_chain": _filter_chain,
    "bind": _bind,
    "prioritize": _prioritize,
    "preempt_chain": _preempt_chain,
    "preempt": _preempt,
    "http": check_http,
    "integration": check_integration,
}


def check_case(case: Case) -> Outcome:
    """None: as upstream. A text: how we differ. A Difference: on purpose."""
    kind = case["kind"]
    if kind in _SYNC:
        return _SYNC[kind](case)
    if kind not in _ASYNC:
        return f"unknown kind {kind!r}"

    async def run() -> Outcome:
        return await _ASYNC[kind](case)

    return asyncio.run(run())


FILES: dict[str, Check] = {"extender.json": check_case}
