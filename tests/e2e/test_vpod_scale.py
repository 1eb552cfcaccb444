"""The scale subresource of a VPod: kubectl scale, and a HorizontalPodAutoscaler of the real
kube-controller-manager that follows an external metric.
"""

import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from extender.kube.api import VPODS, Obj
from extender.model.names import API_VERSION
from tests.e2e.backend import Backend
from tests.e2e.processes import free_port
from tests.e2e.real import RealBackend
from tests.e2e.scenario import System
from tests.e2e.test_kubectl import run_kubectl
from tests.e2e.waiting import NotYet

METRICS: Final = "external.metrics.k8s.io"
APISERVICES: Final = "/apis/apiregistration.k8s.io/v1/apiservices"
PER_VREPLICA: Final = 10
"""What of the metric one vreplica is for."""


async def test_kubectl_scale_says_how_many_vreplicas_a_vpod_wants(
    backend: Backend, tmp_path: Path, kubectl: Path
):
    async with System(backend, tmp_path) as system:
        await backend.add_nodes(2)
        await system.pool()
        tenant = await system.vpods(1, 2)
        await system.settled()
        arguments = ("vpod", "source-0", "-n", tenant, "--current-replicas=2", "--replicas=5")
        said = await run_kubectl(kubectl, system, "scale", *arguments)
        assert said == "vpod.vreplica.dev/source-0 scaled\n"
        await system.settled()
        (vpod,) = (await system.all_vpods()).values()
        assert sum(vpod.placements.values()) == 5
        scale = await backend.api.get(VPODS, tenant, "source-0", subresource="scale")
        assert (scale["spec"], scale["status"]["replicas"]) == ({"replicas": 5}, 5)


async def test_a_horizontal_pod_autoscaler_sizes_a_vpod_by_an_external_metric(
    real: RealBackend, tmp_path: Path
):
    async with System(real, tmp_path) as system:
        await real.add_nodes(2)
        namespace = await system.pool()
        tenant = await system.vpods(1, 1)
        await system.settled()
        async with external_metrics(real, namespace) as values:
            values["queue"] = 4 * PER_VREPLICA + 2
            path = f"/apis/autoscaling/v2/namespaces/{tenant}/horizontalpodautoscalers"
            assert (await real.raw.post(path, autoscaler("source-0"))).status == 201
            await system.eventually(lambda: wants(system, 5), 60.0, "as the metric says")
            values["queue"] = 7 * PER_VREPLICA + 5
            await system.eventually(lambda: wants(system, 8), 60.0, "as the metric says")
        await system.settled()


async def wants(system: System, vreplicas: int) -> bool:
    """Whether the only VPod wants so many."""
    (vpod,) = (await system.all_vpods()).values()
    if vpod.vreplicas != vreplicas:
        raise NotYet(f"{vpod.key} wants {vpod.vreplicas}")
    return True


def autoscaler(vpod: str) -> Obj:
    """One vreplica for each ``PER_VREPLICA`` of the metric ``queue``."""
    target = {"type": "AverageValue", "averageValue": str(PER_VREPLICA)}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": vpod},
        "spec": {
            "scaleTargetRef": {"apiVersion": API_VERSION, "kind": "VPod", "name": vpod},
            "minReplicas": 1,
            "maxReplicas": 8,
            "metrics": [
                {"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}
            ],
        },
    }


@contextlib.asynccontextmanager
async def external_metrics(real: RealBackend, namespace: str) -> AsyncIterator[dict[str, int]]:
    """A server of external metrics, registered with the aggregation layer: name -> value."""
    values: dict[str, int] = {}
    version = f"{METRICS}/v1beta1"

    async def resources(_request: web.Request) -> web.Response:
        found = [
            {"name": name, "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
            for name in values
        ]
        answer = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version}
        return web.json_response({**answer, "resources": found})

    async def value(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        item = {
            "metricName": name,
            "metricLabels": {},
            "timestamp": "2026-01-01T00:00:00Z",
            "value": str(values[name]),
        }
        answer: dict[str, Any] = {"kind": "ExternalMetricValueList", "apiVersion": version}
        return web.json_response({**answer, "metadata": {}, "items": [item]})

    app = web.Application()
    app.router.add_get(f"/apis/{version}", resources)
    app.router.add_get(f"/apis/{version}/namespaces/{{namespace}}/{{name}}", value)
    pki, port = real.control_plane.pki, free_port()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pki.serving_cert, pki.serving_key)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        await _register(real, namespace, port)
        yield values
    finally:
        await real.raw.delete(f"{APISERVICES}/v1beta1.{METRICS}")
        await runner.cleanup()


async def _register(real: RealBackend, namespace: str, port: int) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "metrics"},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    }
    assert (await real.raw.post(f"/api/v1/namespaces/{namespace}/services", service)).status == 201
    reference = {"namespace": namespace, "name": "metrics", "port": port}
    registration = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"v1beta1.{METRICS}"},
        "spec": {
            "group": METRICS,
            "version": "v1beta1",
            "service": reference,
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }
    assert (await real.raw.post(APISERVICES, registration)).status == 201
