"""What kube-scheduler 1.37 makes of a case: the nodes that fit, why the others do not, and every
plugin's scores.

Theory of operation. kube-apiserver, etcd and kube-scheduler run alone: no controller, no kubelet,
and no admission that changes what is compared (``_ADMISSION_OFF``). Running pods are created on
their nodes, pending ones one after the other; each is seen and deleted, so that every pod meets the
same cluster. What is seen:

- *Which nodes fit.* An extender with filter for all pods is asked with exactly the nodes that all
  plugins left.
- *Why the others do not.* That extender refuses every node with the reason ``SEEN``, so
  kube-scheduler writes its whole verdict, preemption included, as the pod's FailedScheduling text.
- *Scores.* The same pod again, and the extender lets all nodes pass: ``schedule_one.go`` logs each
  plugin's weighted, normalized score at verbosity 10. The extender's bind then refuses, so nothing
  changes; its refusal is logged after the pod was forgotten.

Informers are behind the writes. What the next cycle must know of is awaited in the same log:
``eventhandlers.go`` tells of every node and running pod that came, changed or went. Volumes and
owners have no such line; they are written first, and a difference is looked at again.
"""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
from aiohttp import web

from extender.kube.api import Obj
from tests.differential.scheduler_cases import (
    NAMESPACE_LABELS,
    NAMESPACES,
    SchedulerCase,
    pod_key,
    waits_for_first_consumer,
)
from tests.differential.scheduler_csi import ephemeral_claims
from tests.e2e.build import ready_binaries
from tests.e2e.controlplane import ControlPlane, Settings
from tests.e2e.objects import resource_of, scheduler_configuration, write_json
from tests.e2e.processes import Process, free_port
from tests.e2e.raw import RawHttp

SEEN: Final = "seen by the extender"
SCORED: Final = "-scored"
"""Suffix of the pods that the extender lets pass."""
WAIT_S: Final = 20.0
POLL_S: Final = 0.003
_ADMISSION_OFF: Final = (
    "TaintNodesByCondition,DefaultTolerationSeconds,StorageObjectInUseProtection,"
    "DefaultStorageClass"
)
_COLLECTIONS: Final = (
    "/api/v1/nodes",
    *(
        f"/api/v1/namespaces/{namespace}/{kind}"
        for namespace in NAMESPACES
        for kind in ("pods", "services")
    ),
    *(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims" for namespace in NAMESPACES),
    *(f"/apis/apps/v1/namespaces/{namespace}/replicasets" for namespace in NAMESPACES),
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/csidrivers",
    "/apis/storage.k8s.io/v1/volumeattachments",
    *(
        f"/apis/storage.k8s.io/v1/namespaces/{namespace}/csistoragecapacities"
        for namespace in NAMESPACES
    ),
    "/apis/node.k8s.io/v1/runtimeclasses",
)

Scores = Mapping[str, Mapping[str, int]]
"""Node to plugin to weighted score."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a scheduler made of one pod. ``text``: why it does not fit where the extender refuses
    all; ``scores`` from two nodes on.
    """

    feasible: frozenset[str]
    text: str
    scores: Scores


class RefusedObject(Exception):
    """kube-apiserver refused what was drawn: the draw is wrong, not the scheduler."""


class SchedulerOnly(ControlPlane):
    """etcd, kube-apiserver and kube-scheduler."""

    async def start(self) -> None:
        """As ``ControlPlane``, without controllers."""
        try:
            await self._start_etcd()
            await self._start_apiserver()
        except BaseException:
            self.stop()
            raise

    def _audit_arguments(self) -> list[str]:
        return [f"--disable-admission-plugins={_ADMISSION_OFF}"]

    async def start_verbose_scheduler(self, config: Obj) -> Process:
        """kube-scheduler that logs scores and what its informers bring."""
        content = scheduler_configuration(config, kubeconfig=self.scheduler_kubeconfig)
        file = write_json(self.work_dir / "scheduler.json", content)
        program = self.binaries.program("kube-scheduler")
        arguments: list[str | Path] = [program, f"--config={file}", "-v=2"]
        arguments.append("--vmodule=schedule_one=10,eventhandlers=4")
        return await self._start_scheduler("kube-scheduler", arguments, "readyz")


_LINE: Final = re.compile(
    r'^[IWE]\d{4} \S+ +\d+ \S+\] "(?P<message>(?:[^"\\]|\\.)*)"(?P<fields>.*)$'
)
_FIELD: Final = re.compile(r' ([A-Za-z]+)=("(?:[^"\\]|\\.)*"|\S+)')
_NO_FIT: Final = "Unable to schedule pod; no fit; waiting"
_FAILED: Final = "Error scheduling pod; retrying"
_SCORED: Final = "Plugin scored node for pod"
_EVENTS: Final = frozenset(
    f"{change} event for {thing}"
    for change in ("Add", "Update", "Delete")
    for thing in ("node", "scheduled pod")
)


class SchedulerLog:
    """kube-scheduler's log, read as it grows. ``events`` counts (message, object); the rest is by
    pod.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self.events: Counter[tuple[str, str]] = Counter()
        self.scores: dict[str, dict[str, dict[str, int]]] = {}
        self.outcomes: dict[str, str] = {}

    def read(self) -> None:
        """Take in what came since the last time."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if found := _LINE.match(line.decode(errors="replace")):
                self._take(found["message"], found["fields"])

    def _take(self, message: str, rest: str) -> None:
        if message not in _EVENTS and message not in {_NO_FIT, _FAILED, _SCORED}:
            return
        fields = {
            name: json.loads(value) if value.startswith('"') else value
            for name, value in _FIELD.findall(rest)
        }
        pod = fields.get("pod", "")
        if message == _SCORED:
            nodes = self.scores.setdefault(pod, {})
            nodes.setdefault(fields["node"], {})[fields["plugin"]] = int(fields["score"])
        elif message in _EVENTS:
            self.events[message, pod or fields["node"]] += 1
        else:
            self.outcomes.setdefault(pod, fields.get("err", ""))


@dataclass(slots=True)
class SeeingExtender:
    """An extender over HTTP. ``asked``: pod to the nodes that filter was first asked about."""

    url: str = ""
    asked: dict[str, frozenset[str]] = field(default_factory=dict)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve on a free port."""
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/filter", self._filter)
        app.router.add_post("/bind", self._bind)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{port}"
        try:
            yield
        finally:
            await runner.cleanup()

    async def _filter(self, request: web.Request) -> web.Response:
        arguments = orjson.loads(await request.read())
        key, nodes = pod_key(arguments["Pod"]), arguments["NodeNames"]
        self.asked.setdefault(key, frozenset(nodes))
        if key.endswith(SCORED):
            return _json({"NodeNames": nodes})
        return _json({"NodeNames": [], "FailedNodes": dict.fromkeys(nodes, SEEN)})

    async def _bind(self, _request: web.Request) -> web.Response:
        return _json({"Error": SEEN})


def _json(body: Any) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json")


def _configuration(url: str) -> Obj:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "parallelism": 2,
        "clientConnection": {"qps": 1000, "burst": 2000},
        # A pod is looked at once: it is deleted long before it would be tried again.
        "podInitialBackoffSeconds": 300,
        "podMaxBackoffSeconds": 300,
        "extenders": [
            {
                "urlPrefix": url,
                "filterVerb": "filter",
                "bindVerb": "bind",
                "nodeCacheCapable": True,
                "httpTimeout": "5s",
            }
        ],
    }


class RealScheduler:
    """A kube-scheduler with an API server of its own, for one case after the other."""

    def __init__(self, work_dir: Path) -> None:
        self._plane = SchedulerOnly(ready_binaries(), work_dir, Settings(audit=False))
        self._extender = SeeingExtender()
        self._runs = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["RealScheduler"]:
        """Started, and stopped at the end. Raises ControlPlaneUnavailable, ProcessFailed."""
        await self._plane.start()
        try:
            async with self._extender.serving(), RawHttp(self._plane.kubeconfig) as self._raw:
                for namespace, labels in NAMESPACE_LABELS.items():
                    await self._namespace(namespace, labels)
                process = await self._plane.start_verbose_scheduler(
                    _configuration(self._extender.url)
                )
                self._log = SchedulerLog(process.log)
                yield self
        finally:
            self._plane.stop()

    async def _namespace(self, name: str, labels: Mapping[str, str]) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": dict(labels)},
        }
        await self._raw.post("/api/v1/namespaces", body)

    async def verdicts(self, case: SchedulerCase) -> tuple[SchedulerCase, dict[str, Verdict]]:
        """The case as the API server stores it, and the verdict of each pending pod. Raises
        RefusedObject.
        """
        self._runs += 1
        try:
            stored = await self._set_up(case)
            seen: list[Obj] = []
            claims: list[Obj] = []
            verdicts = {}
            for pod in case.pending:
                # Scoring such a pod would have its claim's volume made, or waited for.
                scored = not waits_for_first_consumer(case, pod)
                obj, its_claims, verdict = await self._verdict(pod, scored=scored)
                seen.append(obj)
                claims += its_claims
                verdicts[pod_key(pod)] = verdict
            lookups, nodes, running = stored
            found = SchedulerCase(
                case.name, (*lookups, *claims), nodes, running, case.terminating, tuple(seen)
            )
            return found, verdicts
        except TimeoutError as error:
            raise TimeoutError(f"{case.name}: {error}") from error
        finally:
            await self._clean(case)

    # Objects

    async def _create(self, obj: Obj) -> Obj:
        resource, namespace = resource_of(obj), obj["metadata"].get("namespace")
        path = f"{resource.path}/{f'namespaces/{namespace}/' if namespace else ''}{resource.plural}"
        answer = await self._raw.post(path, obj)
        if answer.status != 201:
            raise RefusedObject(
                f"{resource.kind} {obj['metadata']['name']}: {answer.status} {answer.message}: "
                f"{obj}"
            )
        # Of what is drawn, only volumes have a status that a create drops: nodes keep theirs.
        if obj["kind"] == "PersistentVolume" and "status" in obj:
            stored = {**answer.body, "status": obj["status"]}
            answer = await self._raw.request(
                "PUT", f"{path}/{obj['metadata']['name']}/status", stored
            )
        return dict(answer.body)

    async def _create_all(self, objects: Iterable[Obj]) -> tuple[Obj, ...]:
        return tuple(await asyncio.gather(*(self._create(obj) for obj in objects)))

    async def _set_up(
        self, case: SchedulerCase
    ) -> tuple[tuple[Obj, ...], tuple[Obj, ...], tuple[Obj, ...]]:
        self._log.read()
        self._log.events.clear()
        lookups = await self._create_all(case.lookups)
        nodes = await self._create_all(case.nodes)
        running = await self._create_all(case.running)
        made = await self._create_all(claim for pod in running for claim in ephemeral_claims(pod))
        stored = [
            await self._terminated(pod) if pod_key(pod) in case.terminating else pod
            for pod in running
        ]
        await self._seen("Add event for node", (node["metadata"]["name"] for node in nodes))
        await self._seen("Add event for scheduled pod", map(pod_key, running))
        await self._seen(
            "Update event for scheduled pod",
            (pod_key(pod) for pod in running if pod_key(pod) in case.terminating),
        )
        return (*lookups, *made), nodes, tuple(stored)

    async def _terminated(self, pod: Obj) -> Obj:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        answer = await self._raw.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")
        return dict(answer.body)

    async def _clean(self, case: SchedulerCase) -> None:
        now = {"gracePeriodSeconds": 0}
        await asyncio.gather(*(self._raw.delete(path, now) for path in _COLLECTIONS))
        listed = await self._raw.get("/api/v1/nodes")
        assert not listed.body["items"], "nodes are left"
        await self._gone(case)

    async def _gone(self, case: SchedulerCase) -> None:
        """Waits for the deletions of what was seen to come: a case that was refused half way is
        gone half way.
        """
        self._log.read()
        for message, key in list(self._log.events):
            if message.startswith("Add event"):
                await self._seen(message.replace("Add", "Delete"), [key])

    # Verdicts

    async def _verdict(self, pod: Obj, *, scored: bool) -> tuple[Obj, list[Obj], Verdict]:
        """The pod as it is stored, the claims of its ephemeral volumes, and the verdict."""
        stored, claims, key = await self._look(pod, "")
        feasible = self._extender.asked.pop(key, frozenset())
        text = self._log.outcomes.pop(key).replace(key.partition("/")[2], pod["metadata"]["name"])
        if len(feasible) < 2 or not scored:
            return stored, claims, Verdict(feasible, text, {})
        _, _, key = await self._look(pod, SCORED)
        self._extender.asked.pop(key)
        self._log.outcomes.pop(key)
        return stored, claims, Verdict(feasible, text, self._log.scores.pop(key))

    async def _look(self, pod: Obj, suffix: str) -> tuple[Obj, list[Obj], str]:
        """Let kube-scheduler try the pod once, under a name that no pod had before."""
        namespace = pod["metadata"]["namespace"]
        name = f"{pod['metadata']['name']}-{self._runs}{suffix}"
        key = f"{namespace}/{name}"
        stored, claims = await self._create_pending(
            {**pod, "metadata": {**pod["metadata"], "name": name}}
        )
        await self._until(lambda: key in self._log.outcomes, f"a verdict on {key}")
        await self._raw.delete(
            f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0}
        )
        stored["metadata"]["name"] = pod["metadata"]["name"]
        for claim in claims:
            claim["metadata"]["name"] = claim["metadata"]["name"].replace(
                name, pod["metadata"]["name"]
            )
        return stored, claims, key

    async def _create_pending(self, pod: Obj) -> tuple[Obj, list[Obj]]:
        """Create a pod, and the claims of its ephemeral volumes before it is tried: they name the
        pod's UID.
        """
        if all("ephemeral" not in volume for volume in pod["spec"].get("volumes", ())):
            return await self._create(pod), []
        gated = {**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": "claims"}]}}
        stored = await self._create(gated)
        claims = [await self._create(claim) for claim in ephemeral_claims(stored)]
        del stored["spec"]["schedulingGates"]
        metadata = stored["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        answer = await self._raw.request("PUT", path, stored)
        assert answer.status == 200, answer.message
        return dict(answer.body), claims

    async def _seen(self, message: str, keys: Iterable[str]) -> None:
        wanted = set(keys)
        await self._until(
            lambda: all((message, key) in self._log.events for key in wanted),
            f"{message} of {sorted(wanted)}",
        )

    async def _until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"kube-scheduler: no {what} within {WAIT_S} s")
            await asyncio.sleep(POLL_S)
            self._log.read()
