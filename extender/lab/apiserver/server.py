"""The API server's handlers: every request of ``extender.kube.api.Api``, with its user.

A write runs as in kube-apiserver's generic registry: defaults, mutating admission, the kind's
strategy, validation, validating admission, then the store. If the object changes while an update
waits for a webhook, the update is done again on the new version (at most ``ATTEMPTS_MAX`` times).
If the request names a version, it gets a Conflict instead. Without webhooks nothing awaits between
read and store, so writes are atomic.

Each request first yields to the event loop once, like a request over a network. So a caller that
writes in a loop does not starve watches, and other writes can come between its own.

Field management is not implemented. Of CEL, only the rules of this project's CRDs are
(``rules.py``).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from extender.kube.api import (
    CRDS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITYCLASSES,
    Binding,
    ListOptions,
    ListPage,
    Obj,
    PatchType,
    Preconditions,
    Resource,
    WatchEvent,
)
from extender.lab.apiserver import (
    bindings,
    defaults,
    deletion,
    evictions,
    rules,
    schema,
    statuses,
    strategy,
    subresources,
    validation,
    watching,
)
from extender.lab.apiserver.admission import Admission, Attributes, WebhookCaller, no_caller
from extender.lab.apiserver.registry import PODDISRUPTIONBUDGETS, Kind, Registry
from extender.lab.apiserver.requests import (
    Change,
    Request,
    Target,
    admission_of,
    check_wanted,
    own_request,
    patch_change,
    received,
)
from extender.lab.apiserver.selectors import compile_options
from extender.lab.apiserver.store import Collection, Entry, Key, Store, identical, own
from extender.lab.apiserver.watching import View
from extender.model.names import ZONE_LABEL

ATTEMPTS_MAX: Final = 5
TOPOLOGY_LABELS: Final = (ZONE_LABEL, "topology.kubernetes.io/region")
READABLE: Final = frozenset({"", "status", "scale"})
"""The subresources that can be read. Logs and the like would need a kubelet."""
_SMALL: Final = frozenset({NODES, NAMESPACES})
"""These kinds are validated whole on every write, as a real API server validates all kinds."""
SYSTEM_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")


class ApiServer:
    """The state of one cluster, and the request handlers."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        rng: Random,
        history_events_max: int,
        webhook_caller: WebhookCaller = no_caller,
    ) -> None:
        self.now = now
        self.rng = rng
        self.store = Store(history_events_max)
        self.registry = Registry()
        self.admission = Admission(self.store, lambda: strategy.new_uid(rng), webhook_caller)
        self._nodes = self.store.collection(NODES.group, NODES.plural)
        self._namespaces = self.store.collection(NAMESPACES.group, NAMESPACES.plural)
        self._priority_classes = self.store.collection(
            PRIORITYCLASSES.group, PRIORITYCLASSES.plural
        )
        for name in SYSTEM_NAMESPACES:
            self._create_system_namespace(name)

    def _create_system_namespace(self, name: str) -> None:
        kind = self.registry.resolve(NAMESPACES)
        obj: Obj = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
        defaults.apply(kind.resource, obj)
        strategy.before_create(kind, obj, now_s=self.now(), rng=self.rng)
        self.store.put(self._namespaces, ("", name), obj, None)

    # Reads

    def view(self, resource: Resource, options: ListOptions) -> View:
        """Return the view for a list or watch. Raises NotFound, or ApiError 400 for a selector."""
        kind = self.registry.resolve(resource)
        collection = self.store.collection(*kind.key)
        matches = compile_options(options, kind.selectable, custom=kind.custom)
        return View(
            self.store,
            collection,
            kind.resource,
            matches,
            options.namespace,
            bare_items=not kind.custom,
        )

    async def list_page(
        self, resource: Resource, options: ListOptions, *, limit: int, continue_token: str
    ) -> ListPage:
        """As ``Api.list_page``. Any version is answered with the newest, which is allowed."""
        await asyncio.sleep(0)
        return watching.list_page(
            self.view(resource, options), limit=limit, continue_token=continue_token
        )

    def list_at(self, resource: Resource, options: ListOptions, version: int) -> ListPage | None:
        """List a kind as it was at a version, like a cache that lags; None if that is dropped."""
        return watching.list_at(self.view(resource, options), version)

    def watch(
        self, resource: Resource, options: ListOptions, *, resource_version: str, timeout_s: float
    ) -> AsyncIterator[WatchEvent]:
        """As ``Api.watch``."""

        def look() -> View:
            return self.view(resource, options)

        return watching.watch(look, resource_version=resource_version, timeout_s=timeout_s)

    def target(
        self, resource: Resource, namespace: str, name: str, subresource: str = ""
    ) -> Target:
        """Return a request's target. Raises NotFound for an unknown resource or subresource."""
        kind = self.registry.resolve(resource)
        if (subresource == "status" and not kind.status) or (
            subresource == "scale" and kind.scale is None
        ):
            raise statuses.not_found(resource, name) if kind.custom else statuses.no_such_resource()
        key = (namespace if kind.resource.namespaced else "", name)
        return Target(kind, self.store.collection(*kind.key), key, subresource)

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str) -> Obj:
        """As ``Api.get``."""
        await asyncio.sleep(0)
        if subresource not in READABLE:
            raise statuses.no_such_resource()
        target = self.target(resource, namespace, name, subresource)
        entry = target.entry()
        return (
            subresources.scale_of(target.kind, entry.obj)
            if subresource == "scale"
            else entry.copy()
        )

    # Creates

    async def create(self, request: Request, resource: Resource, namespace: str, obj: Obj) -> Obj:
        """As ``Api.create``."""
        await asyncio.sleep(0)
        kind = self.registry.resolve(resource)
        new = received(kind, namespace, obj)
        metadata = new["metadata"]
        metadata.pop("uid", None)
        names_version = str(metadata.get("resourceVersion") or "0").strip("0").isdigit()
        self._check_namespace(kind, metadata.get("namespace", ""))
        self._fill_in(kind, new)
        if kind.resource == NODES:
            defaults.taint_until_ready(new)
        collection = self.store.collection(*kind.key)
        named = (metadata.get("namespace", ""), metadata.get("name") or "")
        at = admission_of(request, "CREATE", Target(kind, collection, named), new)
        if self.admission.active():
            new = await self._mutated(kind, at)
        strategy.before_create(kind, new, now_s=self.now(), rng=self.rng)
        self._validate(kind, None, new)
        await self.admission.validate(_with_object(at, new))
        if self.admission.active():
            self._check_namespace(kind, at.namespace)
        key = (at.namespace, new["metadata"]["name"])
        if names_version:
            raise statuses.version_on_create()
        if (there := collection.entries.get(key)) is not None:
            leaving = "deletionTimestamp" in there.obj["metadata"]
            raise statuses.already_exists(kind.resource, key[1], leaving=leaving)
        if request.dry_run:
            return new
        entry = self._put(kind, collection, key, new, None)
        return entry.copy()

    def _check_namespace(self, kind: Kind, namespace: str) -> None:
        """NamespaceLifecycle: refuse creates in a namespace that is missing or being deleted."""
        if not kind.resource.namespaced:
            return
        entry = self._namespaces.entries.get(("", namespace))
        if entry is None:
            raise statuses.not_found(NAMESPACES, namespace)
        if entry.obj["metadata"].get("deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {namespace} because it is being "
                f"terminated"
            )
            raise statuses.forbidden(kind.resource, "", why)

    def _fill_in(self, kind: Kind, obj: Obj) -> None:
        """Apply defaults, pruning and the built-in mutating plugins."""
        if kind.custom:
            strategy.default_custom(kind, obj)
            return
        defaults.apply(kind.resource, obj)
        if kind.resource == PODS:
            defaults.default_tolerations(obj)
            defaults.resolve_priority(obj, self._priority_class)
            self._inherit_topology(obj)

    def _inherit_topology(self, pod: Obj) -> None:
        """PodTopologyLabels: copy the zone and region of the pod's node into its labels."""
        node = self._nodes.entries.get(("", pod["spec"].get("nodeName") or ""))
        if node is None:
            return
        labels = node.obj["metadata"].get("labels") or {}
        inherited = {name: labels[name] for name in TOPOLOGY_LABELS if name in labels}
        if inherited:
            pod["metadata"].setdefault("labels", {}).update(inherited)

    def _priority_class(self, name: str) -> Obj | None:
        entries = self._priority_classes.entries
        if name:
            found = entries.get(("", name))
            return found.obj if found else None
        return next(
            (entry.obj for entry in entries.values() if entry.obj.get("globalDefault")), None
        )

    async def _mutated(self, kind: Kind, at: Attributes) -> Obj:
        """Run the mutating webhooks. If they changed the object, default it again."""
        mutated = await self.admission.mutate(at)
        if mutated is None:
            raise statuses.internal("admission removed the object")
        if mutated is not at.object and not at.object_kind:
            if kind.custom:
                strategy.default_custom(kind, mutated)
            else:
                defaults.apply(kind.resource, mutated)
        return mutated

    def _validate(self, kind: Kind, old: Obj | None, new: Obj, known: Sequence[str] = ()) -> None:
        """Raises Invalid with all problems at once, including those of ``known``."""
        metadata = new["metadata"]
        found = list(known)
        found += validation.reference_problems(kind, metadata)
        if old is None:
            found += validation.metadata_problems(kind.resource, metadata)
        else:
            found += validation.map_problems(metadata)
            found += validation.finalizer_problems(old["metadata"], metadata)
        if kind.schema is not None:
            wrong = [*schema.new_problems(new, old, kind.schema)]
            # Rules need values of the right types, so they are checked only if the schema holds.
            found += wrong or (rules.rule_problems(new, old, kind.schema) if kind.rules else ())
        # Most writes leave the spec alone. They need no second check of it.
        if old is None:
            found += validation.object_problems(kind, new)
            found += validation.creation_problems(kind, new)
        elif "spec" not in new or old.get("spec") != new["spec"] or kind.resource in _SMALL:
            found += validation.object_problems(kind, new)
            found += validation.change_problems(kind, old, new)
        if found:
            raise statuses.invalid(kind.resource, metadata.get("name") or "", found)

    def _put(
        self, kind: Kind, collection: Collection, key: Key, obj: Obj, before: Entry | None
    ) -> Entry:
        entry = self.store.put(collection, key, obj, before)
        if kind.resource == CRDS:
            self.registry.define(entry.obj)
        return entry

    # Updates

    async def update(self, request: Request, target: Target, obj: Obj) -> Obj:
        """As ``Api.update``."""
        await asyncio.sleep(0)
        if target.subresource == "scale":
            scale = own_request(obj)
            subresources.check_sent(scale, target.key[1])
            return await self._write_scale(request, target, lambda _: own(scale))
        new = received(target.kind, target.key[0], obj)
        if new["metadata"].setdefault("name", target.key[1]) != target.key[1]:
            raise statuses.other_name(new["metadata"]["name"], target.key[1])
        if target.key not in target.collection.entries and target.kind.create_on_update:
            return await self._create_by_update(request, target, new)
        return await self._write(request, target, lambda _: own(new), patched=False)

    async def _create_by_update(self, request: Request, target: Target, new: Obj) -> Obj:
        """Create an object by PUT, which some kinds allow. The version that it names is ignored."""
        metadata = new["metadata"]
        version, uid = str(metadata.pop("resourceVersion", "")), metadata.get("uid")
        if uid:
            raise statuses.precondition_failed(target.kind.resource, target.key, "UID", uid, "")
        if version and not (version.isascii() and version.isdigit()):
            raise statuses.unparsable_version(version)
        return await self.create(request, target.kind.resource, target.key[0], new)

    async def patch(
        self,
        request: Request,
        target: Target,
        patch: Sequence[Obj] | Obj,
        *,
        patch_type: PatchType | str,
    ) -> Obj:
        """As ``Api.patch``, and kubectl's strategic merge patch for built-in kinds."""
        await asyncio.sleep(0)
        change = patch_change(target.kind, own_request(patch), patch_type)
        if target.subresource == "scale":
            return await self._write_scale(request, target, change)
        return await self._write(request, target, change, patched=True)

    async def _write(
        self, request: Request, target: Target, change: Change, *, patched: bool
    ) -> Obj:
        """Read, change, admit and store an object. If another write came first, try again, unless
        the request names a version.
        """
        for _ in range(ATTEMPTS_MAX):
            before = target.entry()
            new = change(before.copy())
            found = check_wanted(target, before, new, patched=patched)
            new = await self._prepared(request, target, before, new, found)
            if identical(new, before.obj):
                return before.copy()
            if target.collection.entries.get(target.key) is before:
                if request.dry_run:
                    return own(new)
                return self._store_update(target, before, new)
        raise statuses.modified(target.kind.resource, target.key[1])

    async def _prepared(
        self, request: Request, target: Target, before: Entry, new: Obj, found: Sequence[str]
    ) -> Obj:
        """Return the wanted object ready to be stored: defaulted, admitted, with the kind's
        strategy, validated.

        ``found`` are its problems that are known before.
        """
        kind = target.kind
        strategy.default_custom(kind, new)
        if not kind.custom:
            defaults.apply(kind.resource, new)
        if kind.resource == PODS and not target.subresource:
            defaults.default_tolerations(new)
        at = admission_of(request, "UPDATE", target, new, before.obj)
        # Webhooks see the object as it would be stored: for a status write, with the stored spec.
        _apply_strategy(target, before, new)
        if self.admission.active():
            mutated = await self._mutated(kind, at)
            if mutated is not new:
                new = mutated
                _apply_strategy(target, before, new)
        if target.subresource == "status":
            found = [*found, *validation.status_problems(kind, before.obj, new)]
        self._validate(kind, before.obj, new, found)
        await self.admission.validate(_with_object(at, new))
        return new

    def _store_update(self, target: Target, before: Entry, new: Obj) -> Obj:
        if deletion.is_released(new):
            self.remove(target, before)
            # The reply has the version before the removal. Only watches see that of the removal.
            return own(new)
        return self._put(target.kind, target.collection, target.key, new, before).copy()

    def remove(self, target: Target, before: Entry) -> Entry:
        """Remove an object; with a CustomResourceDefinition, also all its custom objects."""
        removed = self.store.remove(target.collection, before)
        if target.kind.resource == CRDS:
            self._withdraw(before.obj)
        return removed

    def _withdraw(self, definition: Obj) -> None:
        kind = self.registry.withdraw(definition)
        if kind is None:
            return
        collection = self.store.collection(*kind.key)
        for key in list(collection.ordered()):
            self.store.remove(collection, collection.entries[key])
        collection.withdraw()

    async def _write_scale(self, request: Request, target: Target, change: Change) -> Obj:
        """Write the scale subresource. Admission sees a Scale, the store the replicas."""
        for _ in range(ATTEMPTS_MAX):
            before = target.entry()
            old = subresources.scale_of(target.kind, before.obj)
            wanted = change(own(old))
            subresources.check_scale(target.kind, before, wanted)
            if self.admission.active():
                at = replace(
                    admission_of(request, "UPDATE", target, wanted, old),
                    object_kind=subresources.SCALE_KIND,
                )
                wanted = await self._mutated(target.kind, at)
                await self.admission.validate(_with_object(at, wanted))
            new = before.copy()
            subresources.set_replicas(
                target.kind, new, (wanted.get("spec") or {}).get("replicas") or 0
            )
            strategy.before_update(target.kind, before.obj, new)
            self._validate(target.kind, before.obj, new)
            if target.collection.entries.get(target.key) is not before:
                continue
            if identical(new, before.obj) or request.dry_run:
                return subresources.scale_of(target.kind, new)
            stored = self._put(target.kind, target.collection, target.key, new, before)
            return subresources.scale_of(target.kind, stored.obj)
        raise statuses.modified(target.kind.resource, target.key[1])

    # Deletes and bindings

    async def delete(
        self,
        request: Request,
        target: Target,
        *,
        preconditions: Preconditions | None,
        grace_period_s: int | None,
    ) -> Obj | None:
        """As ``Api.delete``. Return the object if it stays for now, None if it is gone."""
        await asyncio.sleep(0)
        for _ in range(ATTEMPTS_MAX):
            before = target.entry()
            deletion.check_preconditions(target, before, preconditions)
            if self.admission.active():
                at = admission_of(request, "DELETE", target, None, before.obj)
                await self.admission.mutate(at)
                await self.admission.validate(at)
                if target.collection.entries.get(target.key) is not before:
                    continue
            if request.dry_run:
                return before.copy()
            return self._delete_now(target, before, grace_period_s)
        raise statuses.modified(target.kind.resource, target.key[1])

    def _delete_now(self, target: Target, before: Entry, grace_period_s: int | None) -> Obj | None:
        marked, gone = deletion.marked(target.kind, before, grace_period_s, self.now())
        if not identical(marked, before.obj):
            before = self._put(target.kind, target.collection, target.key, marked, before)
        if not gone:
            return before.copy()
        self.remove(target, before)
        return None

    async def evict(
        self,
        request: Request,
        target: Target,
        *,
        preconditions: Preconditions | None,
        grace_period_s: int | None,
    ) -> None:
        """As ``Api.evict``."""
        await asyncio.sleep(0)
        namespace = target.key[0]

        def stored(collection: Collection) -> list[Obj]:
            return [one.obj for key, one in collection.entries.items() if key[0] == namespace]

        before = target.entry()
        if self.admission.active():
            await self._admit_eviction(request, target, preconditions, grace_period_s)
            before = target.entry()
        deletion.check_preconditions(target, before, preconditions)
        budgets = self.store.collection(PODDISRUPTIONBUDGETS.group, PODDISRUPTIONBUDGETS.plural)
        evictions.check_budgets(before.obj, stored(budgets), stored(target.collection))
        # A webhook may wait during the delete. Another pod of that name was not asked about.
        wanted = preconditions or Preconditions(uid=before.uid)
        await self.delete(
            request,
            replace(target, subresource=""),
            preconditions=wanted,
            grace_period_s=grace_period_s,
        )

    async def _admit_eviction(
        self,
        request: Request,
        target: Target,
        preconditions: Preconditions | None,
        grace_period_s: int | None,
    ) -> None:
        """Show the Eviction to the webhooks for pods/eviction. Raises the ApiError of a refusal."""
        eviction = evictions.eviction_object(
            target.key, preconditions, grace_period_s, dry_run=request.dry_run
        )
        at = replace(
            admission_of(request, "CREATE", target, eviction),
            object_kind=("policy", "v1", "Eviction"),
        )
        await self.admission.validate(_with_object(at, await self._mutated(target.kind, at)))

    async def bind(self, request: Request, binding: Binding) -> None:
        """As ``Api.bind``."""
        await asyncio.sleep(0)
        target = self.target(PODS, binding.namespace, binding.name, "binding")
        binding = bindings.own(binding)
        if self.admission.active():
            at = replace(
                admission_of(request, "CREATE", target, binding.to_json()),
                object_kind=("", "v1", "Binding"),
            )
            binding = bindings.from_object(await self._mutated(target.kind, at))
            await self.admission.validate(_with_object(at, binding.to_json()))
        if not binding.node:
            raise statuses.required_target("target.name")
        before = target.entry()
        bound = bindings.bound(before, binding, self.now())
        self._inherit_topology(bound)
        if not request.dry_run:
            self._put(target.kind, target.collection, target.key, bound, before)


def _apply_strategy(target: Target, before: Entry, new: Obj) -> None:
    if target.subresource == "status":
        strategy.before_status_update(target.kind, before.obj, new)
    else:
        strategy.before_update(target.kind, before.obj, new)
    new["metadata"]["resourceVersion"] = str(before.version)


def _with_object(at: Attributes, obj: Obj) -> Attributes:
    return replace(at, object=obj, name=at.name or str(obj.get("metadata", {}).get("name") or ""))
