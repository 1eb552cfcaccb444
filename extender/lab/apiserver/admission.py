"""Admission webhooks, as Mutating- and ValidatingWebhookConfiguration objects in the store declare
them.

Mutating webhooks run one after another, in the order of the configurations' names. A webhook with
``reinvocationPolicy: IfNeeded`` runs once more if a later webhook changed the object. Validating
webhooks run concurrently, and the first refusal in that order is the answer. ``matchPolicy`` is
ignored (each kind has one version), and ``matchConditions`` (CEL) are not evaluated.

An injected ``WebhookCaller`` makes the calls. If a call fails or takes longer than timeoutSeconds,
the webhook's failurePolicy decides. Only the answer ``allowed: false`` is a refusal.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from extender.kube.api import (
    MUTATING_WEBHOOKS,
    NAMESPACES,
    VALIDATING_WEBHOOKS,
    ApiError,
    Obj,
    error_from_status,
)
from extender.lab.apiserver.patch import json_patch
from extender.lab.apiserver.registry import Kind
from extender.lab.apiserver.selectors import LabelsPredicate, label_selector_object
from extender.lab.apiserver.statuses import bad_request, internal
from extender.lab.apiserver.store import Store, identical, own
from extender.model.errors import VReplicaError

ADMISSION_VERSION: Final = "admission.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class User:
    """The user who makes a request, as admission sees it."""

    name: str = "admin"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")

    def info(self) -> Obj:
        """Return the UserInfo of authentication/v1."""
        return {"username": self.name, "uid": self.name, "groups": list(self.groups)}


ADMIN: Final = User()


@dataclass(frozen=True, slots=True)
class WebhookCall:
    """One call to a webhook: POST ``review`` to ``client_config``'s address, within
    ``timeout_s``.
    """

    webhook: str
    client_config: Mapping[str, Any]
    review: Obj
    timeout_s: float


WebhookCaller = Callable[[WebhookCall], Awaitable[Obj]]
"""Calls a webhook and returns its AdmissionReview. Raises WebhookCallError."""


class WebhookCallError(VReplicaError):
    """A webhook could not be reached, or its answer is not an AdmissionReview."""


async def no_caller(call: WebhookCall) -> Obj:
    """The default caller: every webhook is unreachable."""
    raise WebhookCallError(f"no way to call {call.webhook} was configured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """One request for admission. ``object`` is None for DELETE, ``old`` is None for CREATE."""

    operation: str
    kind: Kind
    namespace: str
    name: str
    user: User
    object: Obj | None
    old: Obj | None = None
    subresource: str = ""
    dry_run: bool = False
    object_kind: tuple[str, str, str] | None = None
    """Group, version and kind of ``object`` if they differ from the resource's: Scale, Binding."""


@dataclass(frozen=True, slots=True)
class _Rule:
    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: frozenset[str]
    scope: str

    def matches(self, at: Attributes) -> bool:
        resource = at.kind.resource
        if not _in(at.operation, self.operations) or not _in(resource.group, self.groups):
            return False
        if not _in(resource.version, self.versions):
            return False
        scope = "Namespaced" if resource.namespaced else "Cluster"
        return self.scope in ("*", scope) and self._has_resource(resource.plural, at.subresource)

    def _has_resource(self, plural: str, subresource: str) -> bool:
        if not subresource:
            return bool(self.resources & {plural, "*", "*/*"})
        return bool(
            self.resources & {f"{plural}/{subresource}", f"{plural}/*", f"*/{subresource}", "*/*"}
        )


def _in(value: str, allowed: frozenset[str]) -> bool:
    return value in allowed or "*" in allowed


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook of a configuration, compiled."""

    name: str
    client_config: Mapping[str, Any]
    rules: tuple[_Rule, ...]
    object_selector: LabelsPredicate
    namespace_selector: LabelsPredicate
    fails_closed: bool
    timeout_s: float
    reinvoke: bool
    side_effects: str

    def matches(
        self, at: Attributes, namespace_labels: Callable[[Attributes], Mapping[str, str] | None]
    ) -> bool:
        """Return whether the request goes to this webhook. The object selector needs to match only
        one of the new and the old object.
        """
        if not any(rule.matches(at) for rule in self.rules):
            return False
        labels = namespace_labels(at)
        if labels is not None and not self.namespace_selector(labels):
            return False
        objects = [obj for obj in (at.object, at.old) if obj is not None]
        return any(
            self.object_selector((obj.get("metadata") or {}).get("labels") or {}) for obj in objects
        )


def _compile(webhook: Mapping[str, Any]) -> Webhook:
    rules = tuple(
        _Rule(
            frozenset(rule.get("operations") or ()),
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("apiVersions") or ()),
            frozenset(rule.get("resources") or ()),
            rule.get("scope") or "*",
        )
        for rule in webhook.get("rules") or ()
    )
    return Webhook(
        name=webhook["name"],
        client_config=webhook.get("clientConfig") or {},
        rules=rules,
        object_selector=label_selector_object(webhook.get("objectSelector")),
        namespace_selector=label_selector_object(webhook.get("namespaceSelector")),
        fails_closed=webhook.get("failurePolicy") != "Ignore",
        timeout_s=float(webhook.get("timeoutSeconds") or 10),
        reinvoke=webhook.get("reinvocationPolicy") == "IfNeeded",
        side_effects=str(webhook.get("sideEffects") or "Unknown"),
    )


class Admission:
    """The admission webhooks of one cluster. ``call`` may be replaced at any time."""

    def __init__(
        self, store: Store, new_uid: Callable[[], str], call: WebhookCaller = no_caller
    ) -> None:
        self.call = call
        self._new_uid = new_uid
        self._namespaces = store.collection(NAMESPACES.group, NAMESPACES.plural)
        self._mutating = store.collection(MUTATING_WEBHOOKS.group, MUTATING_WEBHOOKS.plural)
        self._validating = store.collection(VALIDATING_WEBHOOKS.group, VALIDATING_WEBHOOKS.plural)
        self._compiled: dict[str, tuple[int, list[Webhook]]] = {}

    def active(self) -> bool:
        """Return whether any webhook configuration exists. If none does, writes skip admission."""
        return bool(self._mutating.entries or self._validating.entries)

    async def mutate(self, at: Attributes) -> Obj | None:
        """Return the object after all mutating webhooks. Raises ApiError on refusal."""
        if not self._mutating.entries or _exempt(at):
            return at.object
        called: dict[str, Obj] = {}
        current = at
        hooks = [(f"{number}", hook) for number, hook in enumerate(self._hooks(mutating=True))]
        for key, hook in hooks:
            if self._matches(hook, current):
                current = await self._mutate_once(hook, current)
                called[key] = current.object or {}
        for key, hook in hooks if called else ():
            changed_since = key in called and not identical(called[key], current.object or {})
            if hook.reinvoke and changed_since and self._matches(hook, current):
                current = await self._mutate_once(hook, current)
        return current.object

    async def _mutate_once(self, hook: Webhook, at: Attributes) -> Attributes:
        response = await self._ask(hook, at)
        if response is None or not response.get("patch") or at.object is None:
            return at
        try:
            operations = orjson.loads(base64.b64decode(response["patch"], validate=True))
            patched = json_patch(own(at.object), operations)
        except (ValueError, binascii.Error, AttributeError) as problem:
            raise internal(
                f'failed calling webhook "{hook.name}": the patch cannot be read: {problem}'
            ) from problem
        except ApiError as problem:
            raise internal(f'failed calling webhook "{hook.name}": {problem.message}') from problem
        return replace(at, object=patched)

    async def validate(self, at: Attributes) -> None:
        """Call every validating webhook. Raises the ApiError of the first refusal."""
        if not self._validating.entries or _exempt(at):
            return
        hooks = [hook for hook in self._hooks(mutating=False) if self._matches(hook, at)]
        answers = await asyncio.gather(
            *(self._ask(hook, at) for hook in hooks), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    def _matches(self, hook: Webhook, at: Attributes) -> bool:
        return hook.matches(at, self._namespace_labels)

    def _namespace_labels(self, at: Attributes) -> Mapping[str, str] | None:
        """Return the labels for the namespaceSelector; None (always a match) if cluster-scoped."""
        if at.kind.resource == NAMESPACES:
            return ((at.object or at.old or {}).get("metadata") or {}).get("labels") or {}
        if not at.namespace:
            return None
        entry = self._namespaces.entries.get(("", at.namespace))
        return (entry.obj["metadata"].get("labels") or {}) if entry else {}

    def _hooks(self, *, mutating: bool) -> Sequence[Webhook]:
        """Return the webhooks in calling order, compiled again only after a change."""
        name, collection = (
            ("mutating", self._mutating) if mutating else ("validating", self._validating)
        )
        stamp = hash(tuple(entry.version for entry in collection.entries.values()))
        known = self._compiled.get(name)
        if known is None or known[0] != stamp:
            configurations = [collection.entries[key].obj for key in collection.ordered()]
            hooks = [
                _compile(hook) for config in configurations for hook in config.get("webhooks") or ()
            ]
            known = self._compiled[name] = (stamp, hooks)
        return known[1]

    async def _ask(self, hook: Webhook, at: Attributes) -> Mapping[str, Any] | None:
        """Return a webhook's response; None if it failed and may be ignored. Raises on refusal."""
        if at.dry_run and hook.side_effects not in ("None", "NoneOnDryRun"):
            raise bad_request(f'admission webhook "{hook.name}" does not support dry run')
        review = review_of(at, self._new_uid())
        call = WebhookCall(hook.name, hook.client_config, review, hook.timeout_s)
        try:
            async with asyncio.timeout(hook.timeout_s):
                answer = await self.call(call)
            response = _response_of(answer, review["request"]["uid"])
        except (WebhookCallError, TimeoutError) as problem:
            if not hook.fails_closed:
                return None
            words = str(problem) or "context deadline exceeded"
            raise internal(
                f'failed calling webhook "{hook.name}": failed to call webhook: {words}'
            ) from problem
        if not response.get("allowed"):
            raise refusal(hook.name, response.get("status") or {})
        return response


def _exempt(at: Attributes) -> bool:
    """Webhook configurations are never sent to webhooks, so that a broken one can be removed."""
    return at.kind.resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)


def _response_of(answer: Any, uid: str) -> Mapping[str, Any]:
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        raise WebhookCallError("webhook response was absent")
    if answer.get("kind") != "AdmissionReview" or answer.get("apiVersion") != ADMISSION_VERSION:
        raise WebhookCallError(
            f"expected webhook response of {ADMISSION_VERSION}, Kind=AdmissionReview"
        )
    if response.get("uid") != uid:
        raise WebhookCallError(f'expected response.uid={uid}, got "{response.get("uid")}"')
    if response.get("patch") and response.get("patchType") != "JSONPatch":
        raise WebhookCallError(
            "webhook returned response.patch but not response.patchType=JSONPatch"
        )
    return response


def refusal(webhook: str, status: Mapping[str, Any]) -> ApiError:
    """Return the error for ``allowed: false``: the webhook's code (400 if it names none), reason
    and message.
    """
    denied = f'admission webhook "{webhook}" denied the request'
    why = status.get("message") or status.get("reason")
    code = max(int(status.get("code") or 0), 400)
    message = f"{denied}: {why}" if why else f"{denied} without explanation"
    return error_from_status(code, {"reason": status.get("reason") or "", "message": message})


def review_of(at: Attributes, uid: str) -> Obj:
    """Return the AdmissionReview v1 that is sent to a webhook."""
    resource = at.kind.resource
    group, version, kind = at.object_kind or (resource.group, resource.version, resource.kind)
    gvk = {"group": group, "version": version, "kind": kind}
    gvr = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    options = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}[
        at.operation
    ]
    request: Obj = {
        "uid": uid,
        "kind": gvk,
        "resource": gvr,
        "requestKind": gvk,
        "requestResource": gvr,
        "operation": at.operation,
        "userInfo": at.user.info(),
        "object": own(at.object) if at.object is not None else None,
        "oldObject": own(at.old) if at.old is not None else None,
        "dryRun": at.dry_run,
        "options": {"kind": options, "apiVersion": "meta.k8s.io/v1"},
    }
    if at.subresource:
        request["subResource"] = request["requestSubResource"] = at.subresource
    if at.name:
        request["name"] = at.name
    if at.namespace:
        request["namespace"] = at.namespace
    return {"kind": "AdmissionReview", "apiVersion": ADMISSION_VERSION, "request": request}
