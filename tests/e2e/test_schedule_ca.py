"""The authorities of the listener for controllers, by the arguments and rights that the chart gives
to the process that keeps them.
"""

import base64
from datetime import UTC, datetime
from pathlib import Path

import pytest

from extender.kube.api import CONFIGMAPS, SECRETS, Forbidden, Obj, PatchType
from extender.kube.client import KubeApi
from tests.e2e.installed import ChartSystem
from tests.e2e.processes import VENV_BIN
from tests.e2e.real import RealBackend
from tests.e2e.scenario import UPKEEP_ACCOUNT
from tests.e2e.waiting import NotYet, eventually
from webhook.x509 import Pair, certificates_in, serving_problem

CA = "vreplica-schedule-ca"
SECRET = "vreplica-schedule-certificate"

pytestmark = pytest.mark.usefixtures("_helm_and_kubectl")


async def test_callers_verify_the_listener_by_the_config_map_of_their_namespace(
    real: RealBackend, tmp_path: Path
):
    callers = await real.namespace("callers")
    account = f"{callers}/controller"
    schedule = {"enabled": True, "allowedServiceAccounts": [account]}
    system = ChartSystem(real, tmp_path, {"schedule": schedule})
    await system.install_manifests()
    container = await system.container("vreplica-webhook-upkeep", "schedule-upkeep")
    arguments = [each for each in container["command"][1:] if not each.startswith("--config=")]
    kubeconfig = await system.kubeconfig_for(UPKEEP_ACCOUNT)
    real.processes.start(
        "schedule-upkeep",
        [VENV_BIN / container["command"][0], *arguments, f"--kubeconfig={kubeconfig}"],
    )
    spaces = [system.system_namespace, callers]

    async def published() -> bytes:
        found = [await real.api.get(CONFIGMAPS, each, CA) for each in spaces]
        first, second = (obj.get("data", {}).get("ca.crt", "") for obj in found)
        if not first or first != second:
            raise NotYet(f"{first!r:.40}, {second!r:.40}")
        return str(first).encode()

    ca_pem = await eventually(published, 30.0, "the authorities are published")
    secret = await real.api.get(SECRETS, system.system_namespace, SECRET)
    serving = Pair(*(base64.b64decode(secret["data"][name]) for name in ("tls.crt", "tls.key")))
    host = f"vreplica-schedule.{system.system_namespace}.svc"
    assert serving_problem(serving, certificates_in(ca_pem), [host], datetime.now(UTC)) == ""
    assert b"PRIVATE" not in ca_pem

    # An upgrade leaves it as it is, and an account that is added gets its own.
    added = await real.namespace("callers")
    accounts = [account, f"{added}/controller"]
    await system.upgrade(schedule={**schedule, "allowedServiceAccounts": accounts})
    assert await published() == ca_pem
    assert "data" not in await real.api.get(CONFIGMAPS, added, CA)

    upkeep = await KubeApi.connect(
        kubeconfig=str(kubeconfig), context="", user_agent="e2e", qps=50.0, burst=100
    )
    try:
        other: Obj = {"metadata": {"name": "other", "namespace": callers}, "data": {"a": "b"}}
        await real.api.create(CONFIGMAPS, callers, other)
        change = {"data": {"ca.crt": "x"}}
        for namespace, name in ((callers, "other"), (callers, "kube-root-ca.crt"), ("default", CA)):
            with pytest.raises(Forbidden):
                await upkeep.patch(CONFIGMAPS, namespace, name, change, patch_type=PatchType.MERGE)
        with pytest.raises(Forbidden):
            await upkeep.create(CONFIGMAPS, callers, {"metadata": {"name": "made"}})
    finally:
        await upkeep.close()
    await system.uninstall()
