"""The webhook's endpoints, ``/mutate`` and ``/validate``: bytes of an AdmissionReview to the bytes
of the answer.

Promises: the answer is an AdmissionReview for the request's UID; a patch is valid RFC 6902 for that
very pod, and stamping the pod that results yields no patch (``reinvocationPolicy: IfNeeded``).
"""

import base64
import copy
from typing import Any

import orjson

from extender.lab.apiserver.patch import json_patch
from extender.model.names import PLACEMENTS_ANNOTATION, SLOTS_ANNOTATION, SLOTS_RESOURCE
from extender.model.reading import mapping
from tests.fuzz.findings import Broken, general, outcome_of
from tests.fuzz.target import Target, recorded
from tests.webhook.builders import (
    NS,
    a_namespace,
    a_pod,
    a_pool_object,
    a_vpod_object,
    caches,
    review,
)
from webhook.mutate import DEFAULT_STAMP, Stamp, stamp
from webhook.review import AdmissionRequest, ReviewError, Verdict, decode_review, encode_review
from webhook.validate import DEFAULT_RULES, validate

WITH_RESOURCE = Stamp(slots_resource=True)
RESPONSE_KEYS = {"uid", "allowed", "patchType", "patch", "status", "warnings"}


class ReviewTarget(Target):
    """One of the two."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    async def open(self) -> None:
        """See Target."""
        self.view = caches(
            pools=[
                a_pool_object(),
                a_pool_object("closed", 5, namespaceSelector={"matchLabels": {"tier": "gold"}}),
            ],
            vpods=[
                a_vpod_object("orders", placements={"dispatcher-0": 3, "dispatcher-1": 5}),
                a_vpod_object("heavy", weight=19, placements={"dispatcher-1": 1}),
            ],
            namespaces=[a_namespace("tenant-a", tier="gold"), a_namespace("tenant-b")],
        )
        self.words = (
            "UPDATE",
            "CREATE",
            "DELETE",
            "status",
            "adapterpools",
            "vpods",
            "pods",
            "vreplica.dev",
            "closed",
            "tenant-b",
            PLACEMENTS_ANNOTATION,
            SLOTS_ANNOTATION,
            "vreplica.dev/pool",
            "knative-kafkasource",
            "ha",
            "initContainers",
        )
        self.seeds = [*recorded("mutate-1"), *_reviews()]
        self.known = self._facts()

    def _facts(self) -> object:
        return {plural: dict(sink.objects) for plural, sink in self.view.sinks.items()}

    async def run(self, data: bytes) -> str:
        """See Target."""
        try:
            request = decode_review(data)
            verdict = self._decide(request)
            answer = encode_review(request.uid, verdict)
        except ReviewError as error:
            if error.status not in {400, 413}:
                raise Broken(f"status {error.status} is not documented") from error
            return outcome_of(error)
        ops = _check_answer(orjson.loads(answer), request.uid)
        if ops:
            self._check_patch(request, ops, DEFAULT_STAMP)
        if self.name == "mutate":
            self._check_patch(
                request, list(stamp(request, self.view, WITH_RESOURCE).patch), WITH_RESOURCE
            )
        paths = sorted({op["path"].rpartition("/")[2] for op in ops})
        what = verdict.message.partition(": ")[2] or verdict.message
        return (
            f"200 {verdict.allowed} {verdict.code} {general(what)[:60]} {','.join(paths)} "
            f"{len(verdict.warnings)}"
        )

    def _decide(self, request: AdmissionRequest) -> Verdict:
        if self.name == "mutate":
            return stamp(request, self.view)
        return validate(request, self.view, DEFAULT_RULES)

    def _check_patch(self, request: AdmissionRequest, ops: list[Any], how: Stamp) -> None:
        try:
            pod = copy.deepcopy(dict(request.object or {}))
        except RecursionError:  # our own copy of it, for this check alone
            return
        stamped = json_patch(pod, ops)
        again = stamp(AdmissionRequest(**{**_fields(request), "object": stamped}), self.view, how)
        if again.patch:
            raise Broken(f"stamping a stamped pod changes it: {list(again.patch)[:3]}")
        if not ops or not _has_containers(stamped):
            return
        first = stamped["spec"]["containers"][0]
        for part in ("requests", "limits"):
            slots = mapping(first, "resources", part).get(SLOTS_RESOURCE)
            if (slots is not None) is not how.slots_resource:
                raise Broken(f"the first container's {part} of slots: {slots!r}")

    async def check(self) -> None:
        """See Target."""
        if self._facts() != self.known:
            raise Broken("the caches have changed")


def _fields(request: AdmissionRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in AdmissionRequest.__slots__}


def _has_containers(pod: dict[str, Any]) -> bool:
    spec = pod.get("spec")
    listed = spec.get("containers") if isinstance(spec, dict) else None
    return isinstance(listed, list) and bool(listed) and isinstance(listed[0], dict)


def _check_answer(answer: dict[str, Any], uid: str) -> list[dict[str, Any]]:
    """The patch of an answer that is in order."""
    if answer.keys() != {"apiVersion", "kind", "response"} or answer["kind"] != "AdmissionReview":
        raise Broken(f"no AdmissionReview: {answer}"[:300])
    response = answer["response"]
    if (
        not response.keys() <= RESPONSE_KEYS
        or response["uid"] != uid
        or type(response["allowed"]) is not bool
    ):
        raise Broken(f"no response to {uid!r}: {response}"[:300])
    if response["allowed"] == ("status" in response) or ("patch" in response) != (
        "patchType" in response
    ):
        raise Broken(f"a response that contradicts itself: {response}"[:300])
    if any(not text.isprintable() or len(text) > 256 for text in response.get("warnings", ())):
        raise Broken("a warning that is not one printable line")
    message = response.get("status", {}).get("message", "x")
    if not message or not message.isprintable() or len(message) > 2000:
        raise Broken(f"a message that is not one printable line: {message!r:.200}")
    ops: list[dict[str, Any]] = orjson.loads(
        base64.b64decode(response.get("patch", "W10="), validate=True)
    )
    return ops


def _reviews() -> list[bytes]:
    stamped = {PLACEMENTS_ANNOTATION: '{"tenant-a/orders":5}', SLOTS_ANNOTATION: "20"}
    two = [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
        {"name": "d", "resources": {"limits": {SLOTS_RESOURCE: "3"}}},
    ]
    bound = a_pod(annotations=stamped, nodeName="node-1")
    old = a_pod(annotations={})
    pool, vpod = a_pool_object(), a_vpod_object()
    ours = {"resource": "vpods", "group": "vreplica.dev", "namespace": "tenant-a"}
    source = {
        "group": "x.dev",
        "version": "v1",
        "resource": "brokers",
        "kind": "Broker",
        "paths": {"vreplicas": "spec.replicas", "placements": "status.placements", "count": "n"},
        "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
    }
    sourced = a_pool_object(
        sources=[{"preset": "knative-kafkasource"}, source], maxPods=5, profile="ha"
    )
    return [
        review(a_pod()),
        review(
            a_pod(
                "dispatcher-0",
                pool="nobody",
                containers=two,
                initContainers=two,
                schedulerName="default-scheduler",
            )
        ),
        review(bound),
        review(bound, operation="UPDATE", oldObject=old),
        review(
            old,
            operation="UPDATE",
            oldObject=a_pod(pool="closed", annotations=stamped),
            subResource="status",
        ),
        review(vpod, **ours),
        review(a_vpod_object(pool="closed", weight=6), operation="UPDATE", oldObject=vpod, **ours),
        review(sourced, resource="adapterpools", group="vreplica.dev", namespace=NS),
        review(
            pool,
            resource="adapterpools",
            group="vreplica.dev",
            namespace=NS,
            operation="UPDATE",
            oldObject=sourced,
        ),
    ]
