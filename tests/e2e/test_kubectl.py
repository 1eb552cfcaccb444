"""What kubectl shows of our kinds, waits for and applies; and that it reads the embedded cluster as
any other.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from extender.kube.api import ADAPTERPOOLS, VPODS, Obj
from extender.model.names import COMPONENT
from tests.e2e.backend import Backend
from tests.e2e.embedded import EmbeddedBackend
from tests.e2e.scenario import POOL, System
from tests.e2e.waiting import NotYet, eventually


async def run_kubectl(
    kubectl: Path, system: System, *arguments: str, stdin: Obj | None = None
) -> str:
    """kubectl against the system's cluster; its standard output. AssertionError if it fails."""
    process = await asyncio.create_subprocess_exec(
        kubectl,
        f"--kubeconfig={system.backend.kubeconfig}",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(40.0):
        out, errors = await process.communicate(
            json.dumps(stdin).encode() if stdin is not None else None
        )
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def test_kubectl_gets_describes_and_watches(
    embedded: EmbeddedBackend, tmp_path: Path, kubectl: Path
):
    async with System(embedded, tmp_path) as system:
        await embedded.add_nodes(3)
        namespace = await system.pool()
        tenant = await system.vpods(5, 8)
        await system.settled(pods=2)
        header, *rows = (await run_kubectl(kubectl, system, "get", "vpods", "-A")).splitlines()
        assert header.split()[:2] == ["NAMESPACE", "NAME"]
        assert [row.split()[:2] for row in rows] == [
            [tenant, f"source-{index}"] for index in range(5)
        ]
        pools = await run_kubectl(kubectl, system, "get", "adapterpools", "-n", namespace)
        assert pools.splitlines()[1].split()[0] == POOL
        described = await run_kubectl(kubectl, system, "describe", "vpod", "source-0", "-n", tenant)
        assert "AllPlaced" in described
        assert "Scheduled" in described.partition("Events:")[2]
        pod = await run_kubectl(kubectl, system, "describe", "pod", f"{POOL}-0", "-n", namespace)
        assert "Successfully assigned" in pod
        assert "vreplica.dev/placements" in pod
        await _watches(kubectl, system, tenant)


async def _watches(kubectl: Path, system: System, tenant: str) -> None:
    """A change is seen by a watch that was there before it."""
    arguments = [
        f"--kubeconfig={system.backend.kubeconfig}",
        "get",
        "vpods",
        "-n",
        tenant,
        "-w",
        "-o",
        "name",
    ]
    watch = system.backend.processes.start("kubectl", [kubectl, *arguments])

    async def seen(lines: int) -> bool:
        text = watch.log.read_text()
        if len(text.splitlines()) < lines:
            raise NotYet(text)
        return True

    await eventually(lambda: seen(5), 10.0, "the list")
    await system.want(tenant, "source-3", 4)
    await eventually(lambda: seen(6), 10.0, "the change")
    assert watch.log.read_text().splitlines()[5] == "vpod.vreplica.dev/source-3"
    await watch.kill()


def _table(text: str) -> list[dict[str, str]]:
    """Rows of kubectl's output by the columns' names; columns begin where their names do."""
    header, *rows = text.splitlines()
    names = header.split()
    starts = []
    at = 0
    for name in names:
        at = header.index(name, at)
        starts.append(at)
        at += len(name)
    ends = [*starts[1:], None]
    return [
        {name: row[start:end].strip() for name, start, end in zip(names, starts, ends, strict=True)}
        for row in rows
    ]


async def test_a_glance_says_what_is_placed_and_wide_says_where_or_why_not(
    backend: Backend, tmp_path: Path, kubectl: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(3)
        namespace = await system.pool(maxPods=1)
        tenant = await system.vpods(1, 8)
        await run_kubectl(
            kubectl,
            system,
            "wait",
            "--for=condition=Scheduled",
            "vpod/source-0",
            "-n",
            tenant,
            "--timeout=30s",
        )
        late = system.vpod(tenant, "too-many", 40, slotsPerVReplica=1)
        await backend.api.create(VPODS, tenant, late)
        await run_kubectl(
            kubectl,
            system,
            *(
                "wait",
                "--for=condition=Scheduled=False",
                "vpod/too-many",
                "-n",
                tenant,
                "--timeout=30s",
            ),
        )
        rows = {
            row["NAME"]: row
            for row in _table(await run_kubectl(kubectl, system, "get", "vpod", "-n", tenant))
        }
        assert list(rows["source-0"]) == [
            *("NAME", "POOL", "VREPLICAS", "PLACED", "READY", "SCHEDULED", "REASON"),
            *("AVAILABLE", "AGE"),
        ]
        shown = {
            name: rows["source-0"][name]
            for name in ("POOL", "VREPLICAS", "PLACED", "SCHEDULED", "REASON")
        }
        assert shown == {
            "POOL": POOL,
            "VREPLICAS": "8",
            "PLACED": "8",
            "SCHEDULED": "True",
            "REASON": "AllPlaced",
        }
        assert (rows["too-many"]["PLACED"], rows["too-many"]["SCHEDULED"]) == ("12", "False")
        wide = _table(
            await run_kubectl(kubectl, system, "get", "vpods", "-n", tenant, "-o", "wide")
        )
        messages = {row["NAME"]: row["MESSAGE"] for row in wide}
        assert messages["source-0"] == f"all 8 vreplicas are placed: 8 on {POOL}-0"
        assert messages["too-many"].startswith(
            "28 of 40 vreplicas are not placed (InsufficientSlots)"
        )

        async def limited() -> dict[str, str]:
            (pool,) = _table(
                await run_kubectl(kubectl, system, "get", "apool", "-n", namespace, "-o", "wide")
            )
            if (pool["SCALING"], pool["PENDING"], pool["AVAILABLE"]) != (
                "MaxPods",
                "28",
                "NotAllPlaced",
            ):
                raise NotYet(str(pool))
            return pool

        pool = await system.eventually(limited, 15.0, "the pool's status")
        assert (pool["READY"], pool["USED"], pool["FREE"], pool["CLOSED"]) == (
            "True",
            "20",
            "0",
            "0",
        )
        assert pool["MESSAGE"] == "1 of 1 pod takes vreplicas, 0 slots are free"
        (default,) = _table(await run_kubectl(kubectl, system, "get", "apool", "-n", namespace))
        assert (default["UNSERVED"], default["AVAILABLE"]) == ("0", "NotAllPlaced")
        both = await run_kubectl(kubectl, system, "get", "vreplica", "-A", "-o", "name")
        assert {line.partition("/")[0] for line in both.splitlines()} == {
            "vpod.vreplica.dev",
            "adapterpool.vreplica.dev",
        }


@pytest.mark.parametrize("backend_name", ["real"])
async def test_kubectl_explains_fields_by_their_descriptions(
    backend: Backend, tmp_path: Path, kubectl: Path
):
    async with System(backend, tmp_path) as system:
        vpod = await run_kubectl(kubectl, system, "explain", "vpod.status.placements")
        assert "Where the vreplicas are" in vpod
        assert "Name of the adapter pod" in vpod
        pool = await run_kubectl(kubectl, system, "explain", "apool.spec", "--recursive")
        assert "rescheduleAfterSeconds" in pool
        resources = await run_kubectl(
            kubectl, system, "api-resources", "--api-group=vreplica.dev", "--no-headers"
        )
        assert {tuple(line.split()[:2]) for line in resources.splitlines()} == {
            ("adapterpools", "apool"),
            ("vpods", "vpod"),
            ("vreplicaquotas", "vquota"),
        }


def _owned(obj: Obj, manager: str) -> list[tuple[str, str, dict[str, Any]]]:
    """(operation, subresource, fields) of a manager's entries."""
    return [
        (entry["operation"], entry.get("subresource", ""), entry["fieldsV1"])
        for entry in obj["metadata"]["managedFields"]
        if entry["manager"] == manager
    ]


@pytest.mark.parametrize("backend_name", ["real"])
async def test_who_applies_a_spec_again_and_again_never_conflicts_with_us(
    backend: Backend, tmp_path: Path, kubectl: Path
):
    apply = ("apply", "--server-side", "--field-manager=gitops", "-f", "-")
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(3)
        namespace = await system.pool()
        tenant = await system.vpods(0, 0)
        for vreplicas in (8, 30, 5):
            wanted = system.vpod(tenant, "a", vreplicas)
            await run_kubectl(kubectl, system, *apply, stdin=wanted)
            await run_kubectl(
                kubectl,
                system,
                *(
                    "wait",
                    "--for=jsonpath={.status.scheduledVReplicas}=" + str(vreplicas),
                    "vpod/a",
                ),
                *("-n", tenant, "--timeout=40s"),
            )
        vpod = await backend.api.get(VPODS, tenant, "a")
        ours = _owned(vpod, COMPONENT)
        assert {(operation, subresource) for operation, subresource, _ in ours} == {
            ("Update", "status")
        }
        assert all(set(fields) == {"f:status"} for _, _, fields in ours)
        placements = ours[0][2]["f:status"]["f:placements"]
        assert all(key.startswith('k:{"podName":') for key in placements if key != ".")
        pool = await backend.api.get(ADAPTERPOOLS, namespace, POOL)
        # This test's own client made the pool, and calls itself as the service does.
        told = [
            fields for _, subresource, fields in _owned(pool, COMPONENT) if subresource == "status"
        ]
        assert [set(fields) for fields in told] == [{"f:status"}]


@pytest.mark.parametrize("backend_name", ["real"])
async def test_a_status_is_nobodys_to_apply_but_ours(
    backend: Backend, tmp_path: Path, kubectl: Path
):
    async with System(backend, tmp_path) as system:
        await system.pool()
        tenant = await system.vpods(1, 4)
        applied = {
            "apiVersion": "vreplica.dev/v1alpha1",
            "kind": "VPod",
            "metadata": {"name": "source-0", "namespace": tenant},
            "status": {"scheduledVReplicas": 4},
        }
        # Without force it is a conflict already, once we have written ours.
        apply = ("apply", "--server-side", "--force-conflicts", "--subresource=status", "-f", "-")

        async def refused() -> str:
            try:
                await run_kubectl(kubectl, system, *apply, stdin=applied)
            except AssertionError as error:
                return str(error)
            raise NotYet("the API server takes a second or two to heed a new policy")

        told = await eventually(refused, 15.0, "it is refused")
        assert "only the scheduler service may write the status" in told
