"""Checks a MutatingWebhookConfiguration or ValidatingWebhookConfiguration: which requests it
blocks, and whether it reaches the webhook.

A webhook is ours if its name is in our domain, or if its Service's name contains ``vreplica``.
Selectors are evaluated as in the API server, for the two namespaces that a webhook must not block
while it is down: kube-system, without which nothing in the cluster recovers, and the webhook's own
namespace. Every adapter pod has the label ``vreplica.dev/pool`` and a namespace. A selector that
requires anything else leaves some adapter pods out.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from extender.cli.lint.codes import Subject
from extender.model.names import GROUP, OWN_NAMESPACE, POOL_LABEL
from extender.model.objects import LabelSelector
from extender.model.reading import Json, mapping, mappings, selector_from, text, texts

MUTATING: Final = "MutatingWebhookConfiguration"
VALIDATING: Final = "ValidatingWebhookConfiguration"
TIMEOUT_DEFAULT_S: Final = 10
TIMEOUT_WARN_S: Final = 10
TIMEOUT_MAX_S: Final = 30
NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
KUBE_SYSTEM: Final = "kube-system"
MESSAGE_MAX: Final = 300
_PATHS: Final = {MUTATING: "/mutate", VALIDATING: "/validate"}
_EVICT_PATH: Final = "/evict"
_SIDE_EFFECTS: Final = frozenset({"None", "NoneOnDryRun"})
_FAILURE_POLICIES: Final = frozenset({"", "Ignore", "Fail"})


def check_webhook_file(subject: Subject, own_namespace: str = OWN_NAMESPACE) -> str:
    """Add what is wrong with the registration; return a summary. ``own_namespace``: where the
    webhook runs.
    """
    kind = subject.kind
    webhooks = mappings(subject.raw, "webhooks")
    ours = [index for index, raw in enumerate(webhooks) if is_ours(raw)]
    for index in ours:
        _Webhook(subject, webhooks[index], index, own_namespace, kind).check()
    if not ours or (
        kind == MUTATING and not any(takes_new_pods(webhooks[index]) for index in ours)
    ):
        code = "VS208" if ours else "VS200"
        subject.found(code, "webhooks", "no webhook of ours is called when a pod is created")
    return f"webhooks: {len(webhooks)}, ours: {len(ours)}"


def is_ours(raw: Json) -> bool:
    """Whether one entry of ``webhooks`` is ours."""
    service = mapping(raw, "clientConfig", "service")
    return text(raw, "name").endswith(f".{GROUP}") or "vreplica" in text(service, "name")


def catches(raw: Json, namespace: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a webhook is called for an object with ``labels`` in a namespace with the labels
    ``namespace``.
    """
    return selector_from(mapping(raw, "namespaceSelector")).matches(namespace) and selector_from(
        mapping(raw, "objectSelector")
    ).matches(labels)


def caught_namespaces(raw: Json, own_namespace: str) -> list[str]:
    """Those of kube-system and our own namespace where a webhook is called for every pod, not only
    for adapter pods.
    """
    names = dict.fromkeys((KUBE_SYSTEM, own_namespace))
    return [name for name in names if catches(raw, {NAMESPACE_LABEL: name}, {})]


def takes_new_pods(raw: Json) -> bool:
    """Whether a rule of a webhook matches CREATE of v1 pods, which are namespaced."""
    return any(
        {"", "*"} & set(texts(rule, "apiGroups"))
        and {"v1", "*"} & set(texts(rule, "apiVersions"))
        and {"pods", "*", "*/*"} & set(texts(rule, "resources"))
        and {"CREATE", "*"} & set(texts(rule, "operations"))
        and text(rule, "scope") != "Cluster"
        for rule in mappings(raw, "rules")
    )


def takes_evictions(raw: Json) -> bool:
    """Whether a rule of a webhook names evictions of pods."""
    return any("pods/eviction" in texts(rule, "resources") for rule in mappings(raw, "rules"))


def demanded(selector: LabelSelector) -> list[str]:
    """The labels that a selector requires, except the pool's, which every adapter pod has."""
    names = [f"{key}={value}" for key, value in selector.match_labels.items() if key != POOL_LABEL]
    for one in selector.match_expressions:
        if one.operator == "In" and one.key != POOL_LABEL:
            names.append(f"{one.key} in ({', '.join(one.values)})")
        elif one.operator == "Exists" and one.key != POOL_LABEL:
            names.append(one.key)
    return names


class _Webhook:
    """One entry of ``webhooks``."""

    def __init__(
        self, subject: Subject, raw: Json, index: int, own_namespace: str, kind: str
    ) -> None:
        self._subject = subject
        self._raw = raw
        self._path = f"webhooks[{index}]"
        self._own = own_namespace
        self._kind = kind

    def check(self) -> None:
        """Add everything that is wrong with it."""
        self._check_reach()
        self._check_timeout()
        self._check_client()
        side_effects = text(self._raw, "sideEffects")
        if side_effects not in _SIDE_EFFECTS:
            self._found(
                "VS207", "sideEffects", f"{side_effects!r:.80}: must be None or NoneOnDryRun"
            )
        if "v1" not in texts(self._raw, "admissionReviewVersions"):
            self._found("VS207", "admissionReviewVersions", "does not contain v1")
        if self._kind == MUTATING and takes_new_pods(self._raw):
            self._check_called()
        if self._kind == MUTATING and text(self._raw, "reinvocationPolicy") != "IfNeeded":
            said = text(self._raw, "reinvocationPolicy") or "not set"
            self._found("VS205", "reinvocationPolicy", f"{said:.80}")

    def _found(self, code: str, field: str, message: str) -> None:
        self._subject.found(code, f"{self._path}.{field}", message)

    def _check_reach(self) -> None:
        """Check which pods wait for the webhook, and which cannot be created without it."""
        policy = text(self._raw, "failurePolicy")
        if policy not in _FAILURE_POLICIES:
            self._found("VS207", "failurePolicy", f"{policy!r:.80}: must be Ignore or Fail")
        fails = policy in {"", "Fail"}  # Fail is the API server's default
        said = policy or "not set, which is Fail"
        if not takes_new_pods(self._raw):
            # The webhook is for our own kinds, so no pod waits for it.
            return
        caught = caught_namespaces(self._raw, self._own)
        if caught and fails:
            self._found(
                "VS201", "failurePolicy", f"{said}, and pods in {' and '.join(caught)} match"
            )
        elif caught:
            self._found("VS202", "objectSelector", f"pods in {' and '.join(caught)} match")
        elif fails:
            self._found("VS203", "failurePolicy", said)
        elif catches(self._raw, {NAMESPACE_LABEL: "default"}, {}):
            self._found("VS202", "objectSelector", f"pods without the label {POOL_LABEL} match")

    def _check_called(self) -> None:
        """Check which adapter pods the selectors leave out."""
        for field, whose, own in (
            ("objectSelector", "pods", POOL_LABEL),
            ("namespaceSelector", "pods in namespaces", NAMESPACE_LABEL),
        ):
            selector = selector_from(mapping(self._raw, field))
            if any(
                one.key == own and one.operator == "DoesNotExist"
                for one in selector.match_expressions
            ):
                self._found("VS210", field, f"selects only {whose} without {own}, but all have it")
            elif labels := demanded(selector):
                self._found(
                    "VS211", field, f"selects only {whose} with {', '.join(labels)}"[:MESSAGE_MAX]
                )
        if conditions := mappings(self._raw, "matchConditions"):
            names = ", ".join(text(one, "name") for one in conditions)
            self._found("VS211", "matchConditions", f"{names:.200}: not evaluated here")

    def _check_timeout(self) -> None:
        raw = self._raw.get("timeoutSeconds")
        timeout_s = TIMEOUT_DEFAULT_S if raw is None else raw
        if type(timeout_s) is not int or not 1 <= timeout_s <= TIMEOUT_MAX_S:
            self._found(
                "VS207", "timeoutSeconds", f"{timeout_s!r:.80}: must be 1 to {TIMEOUT_MAX_S}"
            )
        elif timeout_s >= TIMEOUT_WARN_S:
            said = "not set, which is" if raw is None else ""
            self._found("VS204", "timeoutSeconds", f"{said} {timeout_s} s".strip())

    def _check_client(self) -> None:
        client = mapping(self._raw, "clientConfig")
        service, url = mapping(client, "service"), text(client, "url")
        if bool(service) == bool(url):
            self._found("VS207", "clientConfig", "must have either service or url")
            return
        where = "clientConfig.url" if url else "clientConfig.service.path"
        try:
            path = urlsplit(url).path if url else text(service, "path")
        except ValueError as error:
            self._found("VS207", where, f"{url!r:.120}: {error}")
            return
        evicts = self._kind == VALIDATING and takes_evictions(self._raw)
        right = _EVICT_PATH if evicts else _PATHS[self._kind]
        if path != right:
            self._found("VS206", where, f"{path!r:.80}, not {right}")
        if url and not url.startswith("https://"):
            self._found("VS207", where, f"{url!r:.120}: must be https://")
        if problem := bundle_problem(client.get("caBundle")):
            self._found("VS209", "clientConfig.caBundle", problem)


def bundle_problem(raw: object) -> str:
    """What is wrong with an object's caBundle; "" if it is good or missing."""
    if raw in (None, ""):
        return ""
    try:
        pem = base64.b64decode(str(raw), validate=True)
    except (binascii.Error, ValueError):
        return "is not base64"
    return "" if b"-----BEGIN CERTIFICATE-----" in pem else "holds no PEM certificate"
