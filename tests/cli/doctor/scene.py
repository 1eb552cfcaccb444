"""An installation that is well, as facts; a test breaks one thing."""

import base64
import copy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from extender.cli.doctor.checks.facts import Facts, Listed, MayEvict
from extender.cli.doctor.checks.names import DEFAULT_NAMES
from extender.cli.doctor.checks.verdict import CheckResult
from extender.cli.doctor.examine import examine
from extender.lab.embedded import EVICTION_WEBHOOK
from extender.model.ledger import Share, encode_ledger
from extender.model.names import OWN_NAMESPACE, PLACEMENTS_ANNOTATION, POOL_LABEL, SLOTS_ANNOTATION
from extender.shipped import manifests
from webhook.rotation import STEPS_MAX, Bundle, next_step

NOW_S = 1_800_000_000.0
NS = "knative-eventing"
POOL = "dispatcher"
Obj = dict[str, Any]


def stamp(age_s: float) -> str:
    return datetime.fromtimestamp(NOW_S - age_s, UTC).isoformat().replace("+00:00", "Z")


def named(name: str, namespace: str = "", **fields: Any) -> Obj:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"metadata": metadata, **fields}


def a_bundle(now_s: float = NOW_S) -> Bundle:
    bundle = Bundle()
    for _ in range(STEPS_MAX):
        step = next_step(bundle, ["vreplica-webhook.vreplica-system.svc"], now_s=now_s)
        if step is None:
            break
        bundle = step.bundle
    return bundle


_BUNDLE = a_bundle()


def text_of(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def a_pod(
    ordinal: int, ledger: dict[str, int] | None = None, *, node: str = "node-0", **annotations: str
) -> Obj:
    shares = {key: Share(number) for key, number in (ledger or {}).items()}
    pod = named(f"{POOL}-{ordinal}", NS)
    pod["metadata"] |= {
        "labels": {POOL_LABEL: POOL},
        "annotations": {
            SLOTS_ANNOTATION: "20",
            PLACEMENTS_ANNOTATION: encode_ledger(shares),
            **annotations,
        },
        "creationTimestamp": stamp(600),
    }
    pod["spec"] = {"schedulerName": "vreplica-scheduler", **({"nodeName": node} if node else {})}
    ready = {"type": "Ready", "status": "True" if node else "False"}
    pod["status"] = {"phase": "Running" if node else "Pending", "conditions": [ready]}
    return pod


def a_vpod(name: str, vreplicas: int, placements: dict[int, int], **spec: Any) -> Obj:
    listed = [
        {"podName": f"{POOL}-{ordinal}", "vreplicas": number}
        for ordinal, number in placements.items()
    ]
    reference = {"namespace": NS, "name": POOL}
    return named(
        name,
        "tenant",
        spec={"poolRef": reference, "vreplicas": vreplicas, **spec},
        status={"placements": listed},
    )


class Scene:
    """Facts under construction, by kind: what is listed starts as everything should be."""

    def __init__(self) -> None:
        self.listed: dict[str, list[Obj] | str] = {
            "customresourcedefinitions": [_established(crd) for crd in self.crds()],
            "namespaces": [named(NS)],
            "nodes": [
                named("node-0", status={"conditions": [{"type": "Ready", "status": "True"}]})
            ],
            "adapterpools": [
                named(
                    POOL,
                    NS,
                    spec={
                        "statefulSet": POOL,
                        "slotsPerPod": 20,
                        "maxPods": 2,
                        "descheduling": {"reasons": ["NodeTaints"]},
                        "handoff": {"mode": "Overlap"},
                        "rollout": {"strategy": "HandedOver"},
                    },
                )
            ],
            "statefulsets": [
                named(
                    POOL,
                    NS,
                    spec={
                        "replicas": 2,
                        "updateStrategy": {"type": "OnDelete"},
                        "template": {"metadata": {"labels": {POOL_LABEL: POOL}}},
                    },
                )
            ],
            "pods": [a_pod(0, {"tenant/a": 3}), a_pod(1, {"tenant/a": 2})],
            "vpods": [a_vpod("a", 5, {0: 3, 1: 2})],
            "leases": [
                named(
                    "vreplica-scheduler",
                    OWN_NAMESPACE,
                    spec={
                        "holderIdentity": "one",
                        "renewTime": stamp(1),
                        "leaseDurationSeconds": 15,
                    },
                )
            ],
            "deployments": [_deployment("vreplica-scheduler"), _deployment("vreplica-webhook")],
            "services": [named("vreplica-webhook", OWN_NAMESPACE)],
            "endpointslices": [_endpoints()],
            "secrets": [
                named(
                    DEFAULT_NAMES.certificate_secret,
                    OWN_NAMESPACE,
                    data={"tls.crt": text_of(_BUNDLE.cert_pem)},
                )
            ],
            **self._admission(),
        }
        self.version: Obj | None = {"gitVersion": "v1.36.3"}
        self.again: dict[str, list[Obj]] = {}
        self.more: dict[str, Any] = {}

    @staticmethod
    def crds() -> list[Obj]:
        return [
            copy.deepcopy(*manifests(f"crds/{name}.yaml"))
            for name in ("vpods", "adapterpools", "vreplicaquotas")
        ]

    def items(self, plural: str) -> list[Obj]:
        found = self.listed[plural]
        assert isinstance(found, list)
        return found

    def first(self, plural: str) -> Obj:
        return self.items(plural)[0]

    def facts(self) -> Facts:
        facts = Facts(
            now_s=NOW_S,
            server="https://cluster",
            version=self.version,
            listed={plural: _listed(items) for plural, items in self.listed.items()},
            again={plural: Listed(tuple(items)) for plural, items in self.again.items()},
            service_account=f"{OWN_NAMESPACE}/vreplica-scheduler",
            may_evict={NS: MayEvict(allowed=True)},
            crds_shipped={crd["metadata"]["name"]: crd for crd in self.crds()},
            policies_shipped=tuple(policy["metadata"]["name"] for policy in _policies()),
        )
        return replace(facts, **self.more)

    def results(self) -> dict[str, CheckResult]:
        return {one.check.name: one.result for one in examine(self.facts())}

    @staticmethod
    def _admission() -> dict[str, list[Obj] | str]:
        documents = copy.deepcopy(manifests("base/webhook-configurations.yaml"))
        (validating,) = (d for d in documents if d["kind"].startswith("Validating"))
        # The chart adds it with adapters.enabled.
        validating["webhooks"] += copy.deepcopy(EVICTION_WEBHOOK["webhooks"])
        for document in documents:
            for webhook in document["webhooks"]:
                webhook["clientConfig"]["caBundle"] = text_of(_BUNDLE.ca_pem)
        policies = manifests("base/admission-policies.yaml")
        return {
            "mutatingwebhookconfigurations": [
                d for d in documents if d["kind"].startswith("Mutating")
            ],
            "validatingwebhookconfigurations": [
                d for d in documents if d["kind"].startswith("Validating")
            ],
            "validatingadmissionpolicies": _policies(),
            "validatingadmissionpolicybindings": [
                p for p in policies if p["kind"].endswith("Binding")
            ],
        }


def _policies() -> list[Obj]:
    documents = manifests("base/admission-policies.yaml")
    return [one for one in documents if one["kind"] == "ValidatingAdmissionPolicy"]


def _listed(items: list[Obj] | str) -> Listed:
    return Listed(problem=items) if isinstance(items, str) else Listed(tuple(items))


def _established(crd: Obj) -> Obj:
    return {**crd, "status": {"conditions": [{"type": "Established", "status": "True"}]}}


def _deployment(name: str) -> Obj:
    image = (
        "registry.k8s.io/kube-scheduler:v1.36.3"
        if name == "vreplica-scheduler"
        else "vreplica-scheduler:0.1.0"
    )
    ports = [{"name": "https-adapters"}] if name == "vreplica-scheduler" else []
    container = {"name": "one", "image": image, "ports": ports}
    pod = {"serviceAccountName": name, "containers": [container]}
    return named(
        name,
        OWN_NAMESPACE,
        spec={"replicas": 2, "template": {"spec": pod}},
        status={"readyReplicas": 2},
    )


def _endpoints() -> Obj:
    slices = named(
        "vreplica-webhook-1",
        OWN_NAMESPACE,
        endpoints=[{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}],
    )
    slices["metadata"]["labels"] = {"kubernetes.io/service-name": "vreplica-webhook"}
    return slices
