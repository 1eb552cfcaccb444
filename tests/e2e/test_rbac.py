"""The rights in the manifests: enough for everything that is done, and nothing is done with others' rights."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from extender.kube.api import PODS, Obj
from tests.e2e.objects import MANIFESTS, load
from tests.e2e.real import RealBackend
from tests.e2e.scenario import POOL, SYSTEM_NAMESPACE, Setup, System

Right = tuple[str, str, str]
"""API group, resource (with subresource), verb."""


def granted(account: str) -> set[Right]:
    """What our own roles grant a ServiceAccount, wherever."""
    objects = load(MANIFESTS / "base")
    roles = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects if obj["kind"].endswith("Role")}
    rights: set[Right] = set()
    for obj in objects:
        if any(subject["name"] == account for subject in obj.get("subjects", [])):
            role = roles.get((obj["roleRef"]["kind"], obj["roleRef"]["name"]))
            rights |= set(_rights(role["rules"])) if role else set()
    return rights


def _rights(rules: Iterable[Obj]) -> Iterable[Right]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield group, resource, verb


def used(events: Iterable[dict[str, Any]], account: str) -> set[Right]:
    """What the audit log says that it asked for; requests that are not for a resource (discovery) are everybody's."""
    rights = set()
    for event in events:
        if event["user"]["username"] == f"system:serviceaccount:{SYSTEM_NAMESPACE}:{account}":
            ref = event.get("objectRef")
            if ref is not None:
                sub = f"/{ref['subresource']}" if "subresource" in ref else ""
                rights.add((ref.get("apiGroup", ""), ref["resource"] + sub, event["verb"]))
    return rights


async def test_every_right_that_is_used_is_granted_by_the_manifests(real: RealBackend, tmp_path: Path):
    async with System(real, tmp_path, Setup(scheduler_account=True)) as system:
        await real.add_nodes(3, slots=20)
        namespace = await system.pool()
        tenant = await system.vpods(5, 8)
        (first, _) = await system.settled(pods=2)
        await real.api.delete(PODS, namespace, f"{POOL}-0")
        await system.came_back(first)
        await system.want(tenant, "source-0", 2)
        await system.want(tenant, "source-1", 14)
        await system.settled(pods=2)
        # More than there is room for: a refused pod that waits, until a node comes.
        await system.vpods(4, 8)
        await system.event(namespace, f"{POOL}-3", "FailedScheduling", "NodeSlotsExceeded")
        await real.add_nodes(1, slots=20)
        await system.settled(pods=4)
        assert system.service.process is not None
        await system.service.process.terminate()
        events = system.audit()
    for account in ("vreplica-scheduler", "vreplica-webhook"):
        assert used(events, account) <= granted(account)
    assert used(events, "vreplica-scheduler") >= {
        ("", "pods/binding", "create"),
        ("", "pods", "patch"),
        ("apps", "statefulsets/scale", "update"),
        ("coordination.k8s.io", "leases", "update"),
        ("events.k8s.io", "events", "create"),
        ("vreplica.dev", "adapterpools/status", "patch"),
        ("vreplica.dev", "vpods/status", "patch"),
    }
    assert used(events, "vreplica-webhook") >= {("", "secrets", "create"), ("vreplica.dev", "vpods", "watch")}
    # The kube-scheduler binds adapter pods through us: its own right to bind is for others.
    scheduler = used(events, "vreplica-kube-scheduler")
    assert ("coordination.k8s.io", "leases", "update") in scheduler
    assert ("", "pods/binding", "create") not in scheduler


@pytest.mark.parametrize("account", ["vreplica-scheduler", "vreplica-webhook"])
def test_no_role_of_ours_grants_a_wildcard_or_a_way_to_more_rights(account: str):
    rights = granted(account)
    assert rights
    assert not [right for right in rights if "*" in right]
    assert not [right for right in rights if right[2] in {"escalate", "bind", "impersonate"}]
    reading = {"get", "list", "watch"}
    assert not [right for right in rights if right[1] == "secrets" and right[2] in reading - {"get"}]
