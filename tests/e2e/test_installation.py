"""Installed by helm, upgraded, uninstalled: the programs run as the chart says, and adapters never
notice.
"""

import asyncio
import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.kube.api import (
    CRDS,
    LEASES,
    MUTATING_WEBHOOKS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    NotFound,
    PatchType,
    Resource,
    TooManyRequests,
)
from extender.model.names import LEASE_NAME, PLACEMENTS_ANNOTATION
from tests.e2e.installed import DEPLOYMENTS, ChartSystem
from tests.e2e.real import RealBackend
from tests.e2e.scenario import SLOTS_PER_POD
from tests.e2e.test_chart import kubectl_apply
from tests.e2e.waiting import NotYet, eventually
from tests.e2e.watcher import Watcher
from tests.manifests.chart import CHART, RELEASE, RenderFailed, Values, run_helm
from tests.manifests.generate import OWN
from tests.manifests.tool import kubectl

OLD_TOKEN = "vreplica-kube-scheduler-token"
CLUSTERROLES = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False
)
POLICIES = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)


pytestmark = pytest.mark.usefixtures("_helm_and_kubectl")


@pytest.mark.parametrize(
    ("values", "namespace"),
    [
        pytest.param({}, "vreplica-system", id="kube-scheduler beside the extender"),
        pytest.param(OWN, "platform", id="in a Deployment of its own, in another namespace"),
    ],
)
async def test_what_helm_installs_runs_from_its_own_arguments_accounts_and_rights(
    real: RealBackend, tmp_path: Path, values: Values, namespace: str
):
    async with ChartSystem(real, tmp_path, values, namespace=namespace) as system:
        await real.add_nodes(3)
        await system.pool()
        await system.vpods(5, 8)
        adapters = await system.settled()
        assert (
            sum(share.vreplicas for adapter in adapters for share in adapter.ledger.values()) == 40
        )
        assert (await system.requests())["bind"] >= 2


@pytest.mark.parametrize("by", ["server", "client"])
async def test_an_upgrade_leaves_alone_what_others_have_filled_in_and_an_uninstall_the_adapters(
    real: RealBackend, tmp_path: Path, by: str
):
    """Helm 4 applies on the server, Helm 3 (and 4, if told so) works out a patch itself."""
    options = [
        f"--server-side={str(by == 'server').lower()}",
        *(["--force-conflicts=false"] if by == "client" else []),
    ]
    old = _older_chart(tmp_path / "old")
    async with ChartSystem(real, tmp_path, {}, options=options, chart=old) as system:
        assert "Age" not in await _columns(system)
        await real.add_nodes(3)
        await system.pool()
        tenant = await system.vpods(5, 8)
        await system.settled()
        await _called_by_service(system)
        before = await _filled_in(system)
        assert before["holder"]
        old_token = await real.api.get(SECRETS, system.system_namespace, OLD_TOKEN)
        assert old_token["data"]["token"]
        await system.watcher.check()
        await system.watcher.stop()
        system.chart = CHART
        said = await system.upgrade(
            config={"leaderElection": {"buckets": 4}, "clientConnection": {"qps": 500}},
            sources={"knative": True},
        )
        assert "helm uninstall" in said
        assert await _filled_in(system) == before
        with pytest.raises(NotFound):
            await real.api.get(SECRETS, system.system_namespace, OLD_TOKEN)
        assert "Age" in await _columns(system)
        await eventually(
            lambda: _may_read_knative(system), 15.0, "the rights to Knative's kinds are added"
        )
        config = await system.service_config()
        assert (config["leaderElection"]["buckets"], config["clientConnection"]["qps"]) == (4, 500)
        for index in (1, 2, 3):
            await real.api.get(LEASES, system.system_namespace, f"{LEASE_NAME}.{index:02d}-of-04")

        stood = await _standing(system)
        await _watched_anew(system)
        await system.uninstall()
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            with pytest.raises(NotFound):
                await real.api.get(resource, "", "vreplica-scheduler")
        with pytest.raises(NotFound):
            await real.api.get(POLICIES, "", "vreplica-ledger")
        for plural in ("vpods", "adapterpools"):
            kept = await real.api.get(CRDS, "", f"{plural}.vreplica.dev")
            assert not kept["metadata"].get("deletionTimestamp")
        assert await _standing(system) == stood
        assert len(stood["pods"]) >= 2
        assert all(stood["placements"].values())
        read = await asyncio.to_thread(_kubectl_get_vpods, real.kubeconfig, tenant)
        assert read == {f"source-{index}": 8 for index in range(5)}


async def test_in_shadow_mode_it_does_with_rights_to_read(real: RealBackend, tmp_path: Path):
    system = ChartSystem(real, tmp_path, {"config": {"mode": "shadow"}})
    system.forget_audit()
    await system.install_manifests()
    await system.pool()
    tenant = await system.vpods(2, 4)
    replica = await system.replica()
    await system.start(replica)
    state = await replica.state()
    assert state["leading"] is False
    assert "shadow" in state
    events = system.audit()
    verbs = {
        event["verb"]
        for event in events
        if event["user"]["username"].endswith(":vreplica-scheduler")
    }
    assert {"list", "watch"} <= verbs <= {"get", "list", "watch"}
    assert all(
        not vpod.placements
        for vpod in (await system.all_vpods()).values()
        if vpod.namespace == tenant
    )
    system.nothing_forbidden()


async def test_installed_again_it_goes_on_where_it_was(real: RealBackend, tmp_path: Path):
    async with ChartSystem(real, tmp_path, {}) as system:
        await real.add_nodes(3)
        await system.pool()
        await system.vpods(5, 8)
        await system.settled()
        stood = await _standing(system)
        await system.uninstall()
        await system.install_manifests()
        system.forget_audit()
        await system._start_schedulers()
        system.service = await system.replica(system.service_url)
        await asyncio.gather(system.start(system.service), system.start_webhook())
        await system.service.leads()
        await system.settled()
        assert await _standing(system) == stood
        await system.vpods(1, 20)
        await system.settled()


async def test_without_a_release_the_rendering_is_applied_to_a_cluster_that_has_nothing_of_ours(
    real: RealBackend, tmp_path: Path
):
    """``helm template | kubectl apply`` as docs/install.md has it."""
    version = (await real.raw.get("/version")).body["gitVersion"]
    namespace = "vreplica-templated"
    rendered = run_helm(
        *("template", RELEASE, CHART, "--namespace", namespace, "--no-hooks"),
        *("--set", "namespace.create=true", "--kube-version", version),
    )
    await kubectl_apply(real, tmp_path, rendered, "--validate=strict")
    for name in ("vreplica-scheduler", "vreplica-webhook"):
        await real.api.get(DEPLOYMENTS, namespace, name)
    deployment = await real.api.get(DEPLOYMENTS, namespace, "vreplica-scheduler")
    images = [
        container["image"] for container in deployment["spec"]["template"]["spec"]["containers"]
    ]
    tags = [image.partition("@")[0] for image in images]  # the chart adds the digests it knows
    assert f"registry.k8s.io/kube-scheduler:{version}" in tags


async def test_helm_takes_over_crds_that_kubectl_has_applied_where_it_is_told_to(
    real: RealBackend, tmp_path: Path
):
    """Without the option it says that they exist and cannot be imported; objects of ours outlive
    the change of hands.
    """
    crds = CHART.parents[1] / "crds"
    await real.apply([crds / "vpods.yaml", crds / "adapterpools.yaml"])
    for plural in ("vpods", "adapterpools"):
        mine = {
            "metadata": {
                "labels": {"app.kubernetes.io/managed-by": None},
                "annotations": {
                    "meta.helm.sh/release-name": None,
                    "meta.helm.sh/release-namespace": None,
                },
            }
        }
        await real.api.patch(CRDS, "", f"{plural}.vreplica.dev", mine, patch_type=PatchType.MERGE)
    place = ("--namespace", "vreplica-late", "--create-namespace", "--kubeconfig", real.kubeconfig)
    with pytest.raises(RenderFailed, match=r"cannot be imported into the current release"):
        await asyncio.to_thread(run_helm, "install", "late", CHART, *place)
    said = await asyncio.to_thread(
        run_helm, "install", RELEASE, CHART, *place, "--take-ownership", "--force-conflicts"
    )
    assert "helm uninstall" in said
    crd = await real.api.get(CRDS, "", "vpods.vreplica.dev")
    assert crd["metadata"]["annotations"]["meta.helm.sh/release-name"] == RELEASE
    await asyncio.to_thread(
        run_helm,
        "uninstall",
        RELEASE,
        "--namespace",
        "vreplica-late",
        "--kubeconfig",
        real.kubeconfig,
    )


async def test_the_charts_own_test_asks_and_tells(real: RealBackend, tmp_path: Path):
    """The command of the pod that ``helm test`` starts; with the addresses of this machine in place
    of the Services'.
    """
    values = {"metrics": {"enabled": True}}
    async with ChartSystem(real, tmp_path, values) as system:
        assert system.webhook_tls is not None
        hooks = yaml.safe_load_all(await system.helm("get", "hooks", RELEASE))
        (pod,) = [document for document in hooks if document]
        command: list[str] = pod["spec"]["containers"][0]["command"]
        asked = [url for url in command if url.startswith(("http", "unverified"))]
        assert [url.rpartition("/")[0] for url in asked] == [
            "https://vreplica-webhook.vreplica-system.svc",
            "http://vreplica-scheduler.vreplica-system.svc:10262",
            "unverified+https://vreplica-scheduler.vreplica-system.svc:10259",
        ]
        authority = tmp_path / "ca.crt"
        secret = await real.raw.get(
            "/api/v1/namespaces/vreplica-system/secrets/vreplica-webhook-certificate"
        )
        authority.write_bytes(base64.b64decode(secret.body["data"]["ca.crt"]))
        script = command[3]
        here = [f"{system.webhook_url}/readyz", f"http://127.0.0.1:{system.health_port}/readyz"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-c", script, authority, *here, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        assert (process.returncode, out.decode().split()) == (0, [here[0], "200", here[1], "200"])


def _older_chart(folder: Path) -> Path:
    """The chart of a version whose VPods had a printer column less, and kube-scheduler a token that
    never expires.
    """
    chart = Path(shutil.copytree(CHART, folder / CHART.name))
    file = chart / "files" / "crds" / "vpods.yaml"
    definition = yaml.safe_load(file.read_text())
    columns = definition["spec"]["versions"][0]["additionalPrinterColumns"]
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = [
        c for c in columns if c["name"] != "Age"
    ]
    file.write_text(yaml.safe_dump(definition))
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": OLD_TOKEN,
            "namespace": "{{ .Release.Namespace }}",
            "annotations": {"kubernetes.io/service-account.name": "vreplica-kube-scheduler"},
        },
        "type": "kubernetes.io/service-account-token",
    }
    (chart / "templates" / "old-token.yaml").write_text(yaml.safe_dump(secret))
    return chart


async def _columns(system: ChartSystem) -> list[str]:
    definition = await system.real.api.get(CRDS, "", "vpods.vreplica.dev")
    return [
        column["name"] for column in definition["spec"]["versions"][0]["additionalPrinterColumns"]
    ]


async def _filled_in(system: ChartSystem) -> dict[str, Any]:
    """What is in the chart's objects and not of the chart: holder of the Lease, caBundles."""
    api, namespace = system.real.api, system.system_namespace
    lease = await api.get(LEASES, namespace, LEASE_NAME)
    bundles = {
        (resource.kind, webhook["name"]): webhook["clientConfig"]
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
        for webhook in (await api.get(resource, "", "vreplica-scheduler"))["webhooks"]
    }
    return {"holder": lease["spec"]["holderIdentity"], "bundles": bundles}


async def _called_by_service(system: ChartSystem) -> None:
    """As in a cluster: the caBundle has been put beside the Service, where the suite has the
    webhook's URL put instead.
    """
    assert system.webhook is not None
    assert system.upkeep is not None
    await system.webhook.terminate()
    await system.upkeep.terminate()
    for resource, path in ((MUTATING_WEBHOOKS, "/mutate"), (VALIDATING_WEBHOOKS, "/validate")):
        stored = await system.real.api.get(resource, "", "vreplica-scheduler")
        service = {
            "namespace": system.system_namespace,
            "name": "vreplica-webhook",
            "path": path,
            "port": 443,
        }
        ops = [
            {
                "op": "replace",
                "path": f"/webhooks/{index}/clientConfig",
                "value": {"service": service, "caBundle": webhook["clientConfig"]["caBundle"]},
            }
            for index, webhook in enumerate(stored["webhooks"])
        ]
        await system.real.api.patch(
            resource, "", "vreplica-scheduler", ops, patch_type=PatchType.JSON
        )


async def _watched_anew(system: ChartSystem) -> None:
    """A definition that changes ends the history of its objects."""
    system.watcher = Watcher(system.real.api, slots_per_pod=SLOTS_PER_POD)
    await system.watcher.start()
    system._stack.push_async_callback(system.watcher.stop)


async def _may_read_knative(system: ChartSystem) -> bool:
    role = await system.real.api.get(CLUSTERROLES, "", "vreplica-scheduler-sources")
    if not any("consumergroups" in rule["resources"] for rule in role.get("rules") or ()):
        raise NotYet(f"rules: {role.get('rules')}")
    return True


async def _standing(system: ChartSystem) -> dict[str, Any]:
    """What must not change: pods by UID with node, phase and ledger, and where every vpod is
    placed.
    """
    return await eventually(lambda: _standing_now(system), 15.0, "what stands is read")


async def _standing_now(system: ChartSystem) -> dict[str, Any]:
    pods = {
        obj["metadata"]["uid"]: (
            obj["spec"]["nodeName"],
            obj["status"]["phase"],
            obj["metadata"]["annotations"][PLACEMENTS_ANNOTATION],
        )
        for obj in await system.adapters()
    }
    try:
        placements = {
            key: dict(vpod.placements) for key, vpod in (await system.all_vpods()).items()
        }
    except TooManyRequests as error:
        # For a moment after their definition has changed.
        raise NotYet(str(error)) from error
    return {"pods": pods, "placements": placements}


def _kubectl_get_vpods(kubeconfig: Path, namespace: str) -> dict[str, int]:
    command = [
        str(kubectl()),
        f"--kubeconfig={kubeconfig}",
        "get",
        "vpods",
        "-n",
        namespace,
        "-o",
        "json",
    ]
    items = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=30).stdout)[
        "items"
    ]
    return {
        item["metadata"]["name"]: sum(share["vreplicas"] for share in item["status"]["placements"])
        for item in items
    }
