"""``vreplica doctor --name`` on an installation of the chart with names of its own, on the real
control plane: kube-scheduler binds the pods of its Deployments, and they are Ready.
"""

import time
from pathlib import Path
from typing import Any, Final

import pytest

from extender.cli.doctor.checks.names import InstallationNames
from extender.kube.api import SECRETS, Obj, PatchType, Preconditions
from tests.cli.doctor.scene import a_bundle, text_of
from tests.e2e.installed import DEPLOYMENTS
from tests.e2e.objects import stateful_set
from tests.e2e.real import RealBackend
from tests.e2e.scenario import DEFAULT_SCHEDULER, adapter_pool
from tests.e2e.test_doctor import diagnosis, wrong
from tests.e2e.test_two_installations import Installation, installed, placed
from tests.e2e.waiting import NotYet, eventually
from tests.manifests.chart import objects, render

pytestmark = [pytest.mark.usefixtures("_helm_and_kubectl"), pytest.mark.long]

NAME: Final = "orders"
NAMES: Final = InstallationNames(NAME)
LEFT_OUT: Final = {"Deployment", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
"""What ``installed`` leaves out: these scenarios run the service as a process."""


async def deployed(real: RealBackend, orders: Installation) -> None:
    """The rest of the chart's objects, and the certificate as the upkeep would write it."""
    values = {
        "fullnameOverride": NAME,
        "config": {"pools": {"namespaces": [orders.pools]}},
        "crds": {"install": False},
    }
    bundle = a_bundle(time.time())
    rest = [
        obj for obj in objects(render(values, namespace=orders.system)) if obj["kind"] in LEFT_OUT
    ]
    for obj in rest:
        for hook in obj.get("webhooks", ()):
            hook["clientConfig"]["caBundle"] = text_of(bundle.ca_pem)
    patch = {"data": {"tls.crt": text_of(bundle.cert_pem)}}
    secret = NAMES.certificate_secret
    await real.api.patch(SECRETS, orders.system, secret, patch, patch_type=PatchType.MERGE)
    await real.start_scheduler(DEFAULT_SCHEDULER)
    await real.apply(rest)


async def test_a_renamed_installation_is_found_well_and_then_what_it_lacks(
    real: RealBackend, tmp_path: Path
):
    await real.add_nodes(3)
    orders = await installed(real, tmp_path, NAME, {})
    await orders.start()
    tenant = await real.namespace("tenant")
    await orders.vpod(tenant, "a", 9)
    await placed(real, tenant, "a")
    await deployed(real, orders)
    options = ("--strict", "--name", NAME, "--namespace", orders.system)

    async def is_well() -> bool:
        status, checks = await diagnosis(real.kubeconfig, *options)
        if status:
            raise NotYet(str(wrong(checks)))
        return True

    await eventually(is_well, 60.0, "doctor finds nothing wrong", interval_s=1.0)

    for gone in (NAMES.upkeep, NAMES.webhook):
        await real.api.delete(DEPLOYMENTS, orders.system, gone, preconditions=Preconditions())
        status, checks = await diagnosis(real.kubeconfig, *options)
        assert status == 1
        assert f"{orders.system}/{gone} is not there" in " ".join(wrong(checks)["deployments"])

    status, checks = await diagnosis(real.kubeconfig)
    assert status == 1
    assert f"--name {NAME} --namespace {orders.system}" in checks["leader"]["fix"]


def registrations(name: str, namespaces: list[str]) -> list[Obj]:
    """Of an installation that serves the pools of these namespaces; of all if there are none."""
    values = {"fullnameOverride": name, "config": {"pools": {"namespaces": namespaces}}}
    rendered = objects(render({**values, "crds": {"install": False}}, namespace=f"{name}-system"))
    return [obj for obj in rendered if obj["kind"].endswith("WebhookConfiguration")]


async def shared(real: RealBackend) -> dict[str, Any]:
    _, checks = await diagnosis(real.kubeconfig)
    found: dict[str, Any] = checks["shared-pools"]
    return found


async def test_a_pool_that_two_installations_serve_is_told(real: RealBackend):
    kinds = [obj for obj in objects(render({})) if obj["kind"] == "CustomResourceDefinition"]
    await real.apply(kinds)
    pools = await real.namespace("adapters")
    await real.apply(
        [adapter_pool(pools, "shared"), stateful_set(pools, "shared", 0, pool="shared")]
    )
    await real.apply([*registrations("one", [pools]), *registrations("two", ["elsewhere"])])
    assert (await shared(real))["verdict"] == "ok"
    await real.apply(registrations("two", []))
    found = await shared(real)
    assert found["verdict"] == "error"
    assert f"AdapterPool {pools}/shared are stamped by the webhooks of one" in found["summary"]
