"""The HTTP server: what clients see on the wire, and kubectl itself where it is installed."""

import asyncio
import base64
import io
import json
import random
import shutil
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from extender.kube.api import (
    CRDS,
    EVENTS,
    NODES,
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ApiError,
    Binding,
    Forbidden,
    Obj,
)
from extender.lab.apiserver.cluster import Cluster
from extender.lab.apiserver.webhooks import HttpWebhookCaller
from extender.lab.embedded import (
    ControllerSettings,
    EmbeddedCluster,
    node_object,
    stateful_set_object,
)
from extender.lab.http.server import HttpApiServer
from extender.lab.http.table import duration_text, json_path
from tests.simulation.cluster_scene import (
    NS,
    WIDGETS,
    a_configuration,
    a_definition,
    a_pod,
    a_webhook,
    a_widget,
)

PATH = f"/api/v1/namespaces/{NS}/pods"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class Wire:
    """A server of a cluster and a client to it."""

    def __init__(
        self, cluster: Cluster, server: HttpApiServer, session: aiohttp.ClientSession
    ) -> None:
        self.cluster = cluster
        self.server = server
        self.session = session

    async def ask(self, method: str, path: str, body=None, **options) -> tuple[int, Obj]:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | options.pop("headers", {})
        async with self.session.request(
            method, self.server.url + path, data=data, headers=headers, **options
        ) as reply:
            return reply.status, json.loads(await reply.read())


@asynccontextmanager
async def a_wire(**settings) -> AsyncIterator[Wire]:
    cluster = Cluster(now=time.time, rng=random.Random(7))
    server = HttpApiServer(cluster, **settings)
    await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Wire(cluster, server, session)
    finally:
        await server.stop()


async def test_objects_are_created_read_changed_and_deleted():
    async with a_wire() as wire:
        status, made = await wire.ask("POST", PATH, a_pod())
        assert (status, made["kind"]) == (201, "Pod")
        assert (await wire.ask("GET", f"{PATH}/p"))[1] == made
        made["metadata"]["labels"] = {"a": "1"}
        assert (await wire.ask("PUT", f"{PATH}/p", made))[0] == 200
        patch = {"metadata": {"labels": {"b": "2"}}}
        for kind in ("merge-patch", "strategic-merge-patch"):
            headers = {"Content-Type": f"application/{kind}+json"}
            status, patched = await wire.ask("PATCH", f"{PATH}/p", patch, headers=headers)
            assert (status, patched["metadata"]["labels"]) == (200, {"a": "1", "b": "2"})
        status, gone = await wire.ask("DELETE", f"{PATH}/p")
        assert (status, gone["status"], gone["details"]["uid"]) == (
            200,
            "Success",
            made["metadata"]["uid"],
        )


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        pytest.param("GET", f"{PATH}/absent", None, 404, "NotFound", id="no object"),
        pytest.param("GET", "/apis/none/v1/things", None, 404, "NotFound", id="no kind"),
        pytest.param("GET", "/api/v2/pods", None, 404, "NotFound", id="no version"),
        pytest.param("GET", "/nonsense", None, 404, "NotFound", id="no path"),
        pytest.param("GET", f"{PATH}/p/x/y", None, 404, "NotFound", id="too deep"),
        pytest.param("POST", PATH, b"{", 400, "BadRequest", id="no JSON"),
        pytest.param("POST", PATH, [1], 400, "BadRequest", id="no object in the body"),
        pytest.param("POST", PATH, {"metadata": {"name": "P"}}, 422, "Invalid", id="invalid"),
        pytest.param("POST", f"{PATH}/p", {}, 405, "MethodNotAllowed", id="POST to a name"),
        pytest.param("PATCH", f"{PATH}/p", {}, 415, "UnsupportedMediaType", id="no patch type"),
        pytest.param("GET", f"{PATH}?labelSelector=a+b", None, 400, "BadRequest", id="selector"),
        pytest.param("GET", f"{PATH}?limit=x", None, 400, "BadRequest", id="limit"),
        pytest.param(
            "GET",
            f"{PATH}?watch=1&fieldSelector=x%3Dy",
            None,
            400,
            "BadRequest",
            id="watch selector",
        ),
        pytest.param("POST", f"{PATH}/p/eviction", [1], 404, "NotFound", id="evict nothing"),
        pytest.param("DELETE", f"{PATH}/p", [1], 400, "BadRequest", id="options that are a list"),
        pytest.param("POST", f"{PATH}/p/binding", {"target": 1}, 400, "BadRequest", id="no target"),
        pytest.param(
            "DELETE", f"{PATH}/p", {"gracePeriodSeconds": "x"}, 404, "NotFound", id="delete nothing"
        ),
    ],
)
async def test_errors_are_status_objects(method, path, body, status, reason):
    async with a_wire() as wire:
        answered, error = await wire.ask(method, path, body)
        assert (answered, error["kind"], error["reason"], error["code"]) == (
            status,
            "Status",
            reason,
            status,
        )


async def test_what_a_kubelet_would_answer_is_not_found():
    """``kubectl logs`` printed the Pod."""
    async with a_wire() as wire:
        await wire.cluster.create(PODS, NS, a_pod())
        assert (await wire.ask("GET", f"{PATH}/p"))[0] == 200
        status, error = await wire.ask("GET", f"{PATH}/p/log")
        assert status == 404
        assert error["message"] == "the server could not find the requested resource"


async def test_a_body_that_is_too_large_is_413():
    async with (
        a_wire() as wire,
        wire.session.post(wire.server.url + PATH, data=io.BytesIO(b"x" * 4_000_000)) as reply,
    ):
        assert (reply.status, (await reply.json())["kind"]) == (413, "Status")


async def test_lists_are_paged_and_selected():
    async with a_wire() as wire:
        for name in "abc":
            await wire.cluster.create(PODS, NS, a_pod(name, labels={"app": name}))
        _, page = await wire.ask("GET", "/api/v1/pods?limit=2")
        assert (page["kind"], [item["metadata"]["name"] for item in page["items"]]) == (
            "PodList",
            ["a", "b"],
        )
        _, rest = await wire.ask(
            "GET", "/api/v1/pods", params={"limit": "2", "continue": page["metadata"]["continue"]}
        )
        assert [item["metadata"]["name"] for item in rest["items"]] == ["c"]
        assert "continue" not in rest["metadata"]
        _, some = await wire.ask("GET", "/api/v1/pods", params={"labelSelector": "app in (a,c)"})
        assert [item["metadata"]["name"] for item in some["items"]] == ["a", "c"]
        await wire.ask("DELETE", f"{PATH}?labelSelector=app%3Da")
        assert wire.cluster.object_count(PODS) == 2


async def lines(wire: Wire, path: str, **params: str) -> list[Obj]:
    """All lines of a watch that ends after a second at most."""
    async with wire.session.get(wire.server.url + path, params={"watch": "1", **params}) as reply:
        assert reply.status == 200
        return [json.loads(line) async for line in reply.content]


async def test_a_watch_streams_lines_until_its_timeout():
    async with a_wire() as wire:
        since = str(wire.cluster.version)
        await wire.cluster.create(PODS, NS, a_pod())
        await wire.cluster.delete(PODS, NS, "p")
        quiet = await lines(wire, PATH, resourceVersion=since, timeoutSeconds="0.05")
        assert [line["type"] for line in quiet] == ["ADDED", "MODIFIED", "DELETED"]
        marked = await lines(
            wire, PATH, resourceVersion=since, timeoutSeconds="0.05", allowWatchBookmarks="true"
        )
        assert marked[-1]["type"] == "BOOKMARK"
        assert marked[-1]["object"]["metadata"]["resourceVersion"] == str(wire.cluster.version)


async def test_a_watch_from_before_the_history_ends_in_an_error_event():
    async with a_wire() as wire:
        await wire.cluster.create(PODS, NS, a_pod())
        wire.cluster.compact()
        [error] = await lines(wire, PATH, resourceVersion="1", timeoutSeconds="1")
        assert (error["type"], error["object"]["code"], error["object"]["reason"]) == (
            "ERROR",
            410,
            "Expired",
        )


async def test_a_streaming_list_sends_what_is_there_and_then_says_so():
    async with a_wire() as wire:
        await wire.cluster.create(PODS, NS, a_pod())
        told = await lines(
            wire,
            PATH,
            sendInitialEvents="true",
            resourceVersionMatch="NotOlderThan",
            allowWatchBookmarks="true",
            timeoutSeconds="0.05",
        )
        assert [line["type"] for line in told[:2]] == ["ADDED", "BOOKMARK"]
        assert told[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_stop_ends_open_watches():
    async with a_wire() as wire:
        url = wire.server.url + PATH
        async with wire.session.get(
            url, params={"watch": "1", "resourceVersion": str(wire.cluster.version)}
        ) as reply:
            began = time.monotonic()
            await wire.server.stop()
            with pytest.raises(aiohttp.ClientError):
                await reply.content.read()
            assert time.monotonic() - began < 1.0


async def test_subresources_bind_scale_and_evict():
    async with a_wire() as wire:
        pod = await wire.cluster.create(PODS, NS, a_pod())
        metadata = {"name": "p", "uid": pod["metadata"]["uid"], "annotations": {"ledger": "{}"}}
        binding = {
            "kind": "Binding",
            "metadata": metadata,
            "target": {"kind": "Node", "name": "n1"},
        }
        assert (await wire.ask("POST", f"{PATH}/p/binding", binding))[0] == 201
        assert (await wire.ask("POST", f"{PATH}/p/binding", binding))[1]["reason"] == "Conflict"
        assert (await wire.cluster.get(PODS, NS, "p"))["metadata"]["annotations"] == {
            "ledger": "{}"
        }
        await wire.cluster.create(STATEFULSETS, NS, stateful_set_object("s", replicas=1))
        path = f"/apis/apps/v1/namespaces/{NS}/statefulsets/s/scale"
        _, scale = await wire.ask("GET", path, headers={"Accept": TABLE})
        scale["spec"]["replicas"] = 3
        assert (await wire.ask("PUT", path, scale))[1]["spec"]["replicas"] == 3
        assert (
            await wire.ask(
                "POST", f"{PATH}/p/eviction", {"deleteOptions": {"gracePeriodSeconds": 0}}
            )
        )[0] == 201
        assert wire.cluster.object_count(PODS) == 0


async def test_a_dry_run_stores_nothing():
    async with a_wire() as wire:
        assert (await wire.ask("POST", f"{PATH}?dryRun=All", a_pod()))[0] == 201
        assert wire.cluster.object_count(PODS) == 0
        await wire.cluster.create(PODS, NS, a_pod())
        await wire.ask("DELETE", f"{PATH}/p", {"dryRun": ["All"]})
        eviction = {"deleteOptions": {"dryRun": ["All"]}}
        assert (await wire.ask("POST", f"{PATH}/p/eviction", eviction))[0] == 201
        assert wire.cluster.object_count(PODS) == 1


async def test_a_token_names_the_user_and_an_unknown_one_nobody():
    async with a_wire(tokens={"secret": "alice"}) as wire:
        asked = []

        async def webhook(call):
            asked.append(call.review["request"]["userInfo"]["username"])
            answer = {"uid": call.review["request"]["uid"], "allowed": True}
            return {
                "kind": "AdmissionReview",
                "apiVersion": "admission.k8s.io/v1",
                "response": answer,
            }

        wire.cluster.call_webhooks_with(webhook)
        await wire.cluster.create(VALIDATING_WEBHOOKS, "", a_configuration(a_webhook()))
        await wire.ask("POST", PATH, a_pod("a"), headers={"Authorization": "Bearer secret"})
        await wire.ask("POST", PATH, a_pod("b"))
        assert asked == ["alice", "admin"]
        assert (await wire.ask("GET", PATH, headers={"Authorization": "Bearer wrong"}))[0] == 401


ACCOUNT = "system:serviceaccount:tenant:controller"


@pytest.mark.parametrize(
    ("token", "user"),
    [
        ("secret", "alice"),
        (ACCOUNT, ACCOUNT),
        (base64.urlsafe_b64encode(ACCOUNT.encode()).decode().rstrip("="), ACCOUNT),
        (base64.urlsafe_b64encode(f"{ACCOUNT} 2".encode()).decode().rstrip("="), ACCOUNT),
        ("wrong", ""),
        ("a.b.c", ""),
        ("", ""),
    ],
)
async def test_a_token_review_names_the_user_of_a_token(token: str, user: str):
    async with a_wire(tokens={"secret": "alice"}) as wire:
        spec = {"token": token, "audiences": ["x"]}
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        status, review = await wire.ask("POST", path, {"spec": spec})
        assert status == 201
        assert review["status"].get("user", {}).get("username", "") == user
        assert review["status"]["authenticated"] is bool(user)
        assert (await wire.ask("POST", path, {"spec": []}))[0] == 400


async def test_tables_have_the_columns_of_each_kind():
    async with a_wire() as wire:
        columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
        definition = a_definition({"size": {"type": "integer"}}, additionalPrinterColumns=columns)
        await wire.cluster.create(CRDS, "", definition)
        await wire.cluster.create(WIDGETS, NS, a_widget(size=3))
        await wire.cluster.create(PODS, NS, a_pod())
        _, widgets = await wire.ask(
            "GET", "/apis/example.dev/v1/widgets", headers={"Accept": TABLE}
        )
        assert [column["name"] for column in widgets["columnDefinitions"]] == ["Name", "Size"]
        assert widgets["rows"][0]["cells"] == ["w", 3]
        assert widgets["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        _, pods = await wire.ask("GET", f"{PATH}?includeObject=Object", headers={"Accept": TABLE})
        assert pods["rows"][0]["cells"][:4] == ["p", "0/1", "Pending", "0"]
        assert pods["rows"][0]["object"]["kind"] == "Pod"


async def test_core_events_are_a_view_of_the_new_ones():
    async with a_wire() as wire:
        regarding = {"kind": "Pod", "namespace": NS, "name": "p"}
        event = {
            "metadata": {"name": "e"},
            "eventTime": "2026-11-21T09:00:00.000001Z",
            "reportingController": "vreplica-scheduler",
            "reportingInstance": "i",
            "action": "Placing",
            "reason": "Scheduled",
            "type": "Normal",
            "note": "fine",
            "regarding": regarding,
            "series": {"count": 4, "lastObservedTime": "2026-11-21T09:05:00.000001Z"},
        }
        await wire.cluster.create(EVENTS, NS, event)
        path = f"/api/v1/namespaces/{NS}/events"
        _, found = await wire.ask("GET", path, params={"fieldSelector": "involvedObject.name=p"})
        [core] = found["items"]
        assert (core["message"], core["count"], core["involvedObject"]) == ("fine", 4, regarding)
        assert core["lastTimestamp"] == "2026-11-21T09:05:00Z"
        _, none = await wire.ask("GET", path, params={"fieldSelector": "involvedObject.name=q"})
        assert none["items"] == []


async def test_discovery_follows_the_definitions():
    async with a_wire() as wire:
        await wire.cluster.create(CRDS, "", a_definition())
        _, groups = await wire.ask("GET", "/apis")
        assert "example.dev" in [group["name"] for group in groups["groups"]]
        _, listed = await wire.ask("GET", "/apis/example.dev/v1")
        assert [entry["name"] for entry in listed["resources"]] == ["widgets", "widgets/status"]
        assert listed["resources"][0]["shortNames"] == ["wd"]
        _, core = await wire.ask("GET", "/api/v1")
        names = {entry["name"] for entry in core["resources"]}
        assert {"pods", "pods/binding", "pods/status", "nodes", "events"} <= names


async def test_the_minor_version_is_that_of_the_git_version():
    async with a_wire() as wire:
        _, version = await wire.ask("GET", "/version")
        assert version["gitVersion"].startswith(f"v{version['major']}.{version['minor']}.")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (900, "15m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 300, "3h5m"),
        (10 * 3600, "10h"),
        (50 * 3600, "2d2h"),
        (20 * 86400, "20d"),
    ],
)
def test_ages_are_written_as_kubectl_writes_them(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".spec.a", 1),
        (".spec.list[1]", "y"),
        ('.status.conditions[?(@.type=="Ready")].status', "True"),
        (".metadata.labels['a.b/c']", "l"),
        (".spec.absent.deeper", None),
    ],
)
def test_printer_columns_by_json_path(path, value):
    obj = {
        "metadata": {"labels": {"a.b/c": "l"}},
        "spec": {"a": 1, "list": ["x", "y"]},
        "status": {
            "conditions": [
                {"type": "Other", "status": "False"},
                {"type": "Ready", "status": "True"},
            ]
        },
    }
    assert json_path(obj, path) == value


# admission over HTTPS


def a_certificate(directory: Path) -> tuple[ssl.SSLContext, bytes]:
    """A self-signed one for 127.0.0.1 and hook.default.svc, and its PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hook")])
    names = x509.SubjectAlternativeName(
        [x509.IPAddress(IPv4Address("127.0.0.1")), x509.DNSName("hook.default.svc")]
    )
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(
        now + timedelta(hours=1)
    )
    certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "tls.pem").write_bytes(pem + private)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "tls.pem")
    return context, pem


@asynccontextmanager
async def an_https_webhook(context: ssl.SSLContext, reply) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_post("/validate", reply)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def refusing(request: web.Request) -> web.Response:
    review = await request.json()
    status = {"code": 403, "reason": "Forbidden", "message": "over HTTPS"}
    response = {"uid": review["request"]["uid"], "allowed": False, "status": status}
    return web.json_response(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}
    )


@pytest.mark.parametrize("by_service", [False, True], ids=["url", "service"])
async def test_a_webhook_is_called_over_https_and_verified_by_its_bundle(tmp_path, by_service):
    context, pem = a_certificate(tmp_path)
    async with an_https_webhook(context, refusing) as port:
        caller = HttpWebhookCaller(lambda namespace, name, _: f"127.0.0.1:{port}")
        async with a_wire(webhooks=caller) as wire:
            bundle = base64.b64encode(pem).decode()
            service = {"namespace": "default", "name": "hook", "path": "/validate"}
            where = (
                {"service": service}
                if by_service
                else {"url": f"https://127.0.0.1:{port}/validate"}
            )
            hook = a_webhook(clientConfig={"caBundle": bundle, **where})
            await wire.cluster.create(VALIDATING_WEBHOOKS, "", a_configuration(hook))
            with pytest.raises(Forbidden, match="denied the request: over HTTPS"):
                await wire.cluster.create(PODS, NS, a_pod())
            untrusted = a_webhook(clientConfig=where)
            configuration = await wire.cluster.get(VALIDATING_WEBHOOKS, "", "hooks")
            configuration["webhooks"] = [untrusted]
            await wire.cluster.update(VALIDATING_WEBHOOKS, "", "hooks", configuration)
            with pytest.raises(ApiError, match="certificate") as refused:
                await wire.cluster.create(PODS, NS, a_pod())
            assert refused.value.status == 500


# kubectl


class Kubectl:
    def __init__(self, kubeconfig: Path) -> None:
        self._arguments = [
            "kubectl",
            "--kubeconfig",
            str(kubeconfig),
            "--cache-dir",
            str(kubeconfig.parent / "cache"),
        ]

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *self._arguments, *arguments, stdin=pipe, stdout=pipe, stderr=pipe
        )

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        process = await self.start(*arguments)
        out, err = await process.communicate(stdin.encode())
        assert process.returncode == 0, err.decode()
        return out.decode()


@asynccontextmanager
async def a_cluster_for_kubectl(tmp_path: Path) -> AsyncIterator[tuple[Cluster, Kubectl]]:
    """A running cluster whose pods are bound to node n1 as soon as they are there."""
    async with a_wire() as wire:
        settings = ControllerSettings(
            pod_start_delay_s=lambda _: 0.01, pod_stop_delay_s=lambda _: 0.01
        )
        async with EmbeddedCluster(wire.cluster, settings):
            await wire.cluster.create(NODES, "", node_object("n1", "z1"))

            async def schedule() -> None:
                async for event in wire.cluster.watch(PODS, resource_version="0"):
                    metadata, spec = event.object["metadata"], event.object.get("spec", {})
                    if event.type == "ADDED" and not spec.get("nodeName"):
                        await wire.cluster.bind(
                            Binding(metadata["namespace"], metadata["name"], "n1")
                        )

            scheduling = asyncio.create_task(schedule())
            path = tmp_path / "kubeconfig"
            path.write_text(json.dumps(wire.server.kubeconfig()))
            yield wire.cluster, Kubectl(path)
            scheduling.cancel()
            await asyncio.gather(scheduling, return_exceptions=True)


needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed"
)


@needs_kubectl
async def test_kubectl_applies_gets_scales_describes_and_deletes(tmp_path):
    async with a_cluster_for_kubectl(tmp_path) as (cluster, kubectl):
        manifest = json.dumps(stateful_set_object("s", replicas=2))
        assert await kubectl("apply", "-f", "-", stdin=manifest) == "statefulset.apps/s created\n"
        assert await kubectl("apply", "-f", "-", stdin=manifest) == "statefulset.apps/s unchanged\n"
        changed = json.dumps(stateful_set_object("s", replicas=3))
        assert await kubectl("apply", "-f", "-", stdin=changed) == "statefulset.apps/s configured\n"
        await kubectl("rollout", "status", "statefulset/s", "--timeout=5s")
        listed = (await kubectl("get", "pods,nodes", "-A", "--no-headers")).split("\n")
        assert [line.split()[:5] for line in listed if "pod/" in line] == [
            [NS, f"pod/s-{ordinal}", "1/1", "Running", "0"] for ordinal in range(3)
        ]
        await kubectl("scale", "statefulset/s", "--replicas=1", "--current-replicas=3")
        described = await kubectl("describe", "pod", "s-0")
        assert "Controlled By:  StatefulSet/s" in described
        await kubectl("delete", "statefulset", "s", "--timeout=5s")
        assert cluster.object_count(STATEFULSETS) == 0


@needs_kubectl
async def test_kubectl_knows_custom_kinds_and_their_errors(tmp_path):
    async with a_cluster_for_kubectl(tmp_path) as (_, kubectl):
        columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
        definition = a_definition({"size": {"type": "integer"}}, additionalPrinterColumns=columns)
        definition |= {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        await kubectl("apply", "-f", "-", stdin=json.dumps(definition))
        widget = {"apiVersion": "example.dev/v1", "kind": "Widget"} | a_widget(size=3)
        await kubectl("apply", "-f", "-", stdin=json.dumps(widget))
        assert (await kubectl("get", "wd")).split() == ["NAME", "SIZE", "w", "3"]
        process = await kubectl.start(
            "patch", "wd", "w", "--type=merge", "-p", '{"spec":{"size":"x"}}'
        )
        _, err = await process.communicate()
        assert process.returncode == 1
        assert b'Widget.example.dev "w" is invalid: spec.size' in err


@needs_kubectl
async def test_kubectl_watches(tmp_path):
    async with a_cluster_for_kubectl(tmp_path) as (cluster, kubectl):
        process = await kubectl.start("get", "pods", "-w", "-o", "name")
        try:
            assert process.stdout is not None
            await asyncio.sleep(0.05)
            await cluster.create(PODS, NS, a_pod())
            assert await asyncio.wait_for(process.stdout.readline(), 5) == b"pod/p\n"
        finally:
            process.terminate()
            await process.communicate()
