"""``Cluster``: an API server in memory, behind the same ``Api`` Protocol as the real one.

It has the semantics that clients depend on: versions and optimistic concurrency, lists that are
consistent across pages, watches with bookmarks and 410, status and scale subresources, bindings,
graceful deletion and finalizers, custom resources from their definitions, admission webhooks, and
the API server's error messages. ``server.py`` explains how a request runs, and ``store.py`` how
versions are kept.

It has no server-side apply and managedFields, no RBAC, no CEL except the rules of this project's
CRDs, and one storage version for each kind. The controllers of a real cluster (StatefulSet
controller, kubelets, garbage collection, namespace deletion) are in ``extender/lab/controllers``.

Each request has a user: ``cluster`` itself is ``admin``, ``cluster.as_user(...)`` is any other.
Time and randomness are injected, so equal seeds give equal names, uids and versions.
"""

import random
from collections.abc import AsyncIterator, Callable, Sequence

from extender.kube.api import (
    EVERYWHERE,
    PODS,
    Api,
    Binding,
    ListOptions,
    ListPage,
    Obj,
    PatchType,
    Preconditions,
    Resource,
    WatchEvent,
)
from extender.lab.apiserver.admission import User, WebhookCaller, no_caller
from extender.lab.apiserver.requests import Request
from extender.lab.apiserver.server import ApiServer
from extender.lab.apiserver.store import Snapshot


class UserView:
    """``Api`` for one user. With ``dry_run`` all checks run, but nothing is stored."""

    def __init__(self, server: ApiServer, request: Request) -> None:
        self.server = server
        self.request = request

    def as_user(
        self, username: str, groups: Sequence[str] = ("system:authenticated",)
    ) -> "UserView":
        """Return a view of the same cluster for another user, who becomes admission's userInfo."""
        user = User(username, tuple(groups))
        return UserView(self.server, Request(user, dry_run=self.request.dry_run))

    def dry_run(self) -> "UserView":
        """Return a view whose writes are checked and answered, but not stored."""
        return UserView(self.server, Request(self.request.user, dry_run=True))

    async def list_page(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage:
        """``Api.list_page``. Any ``resource_version`` gets the newest state, which is allowed."""
        del resource_version
        return await self.server.list_page(
            resource, options, limit=limit, continue_token=continue_token
        )

    def watch(
        self,
        resource: Resource,
        options: ListOptions = EVERYWHERE,
        *,
        resource_version: str,
        timeout_s: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        """``Api.watch``. With version "" or "0" it begins with all objects as ADDED."""
        return self.server.watch(
            resource, options, resource_version=resource_version, timeout_s=timeout_s
        )

    async def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = ""
    ) -> Obj:
        """``Api.get``."""
        return await self.server.get(resource, namespace, name, subresource=subresource)

    async def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        """``Api.create``."""
        return await self.server.create(self.request, resource, namespace, obj)

    async def update(
        self, resource: Resource, namespace: str, name: str, obj: Obj, *, subresource: str = ""
    ) -> Obj:
        """``Api.update``."""
        target = self.server.target(resource, namespace, name, subresource)
        return await self.server.update(self.request, target, obj)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: list[Obj] | Obj,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> Obj:
        """``Api.patch``."""
        target = self.server.target(resource, namespace, name, subresource)
        return await self.server.patch(self.request, target, patch, patch_type=patch_type)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        preconditions: Preconditions | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        """``Api.delete``."""
        target = self.server.target(resource, namespace, name)
        await self.server.delete(
            self.request, target, preconditions=preconditions, grace_period_s=grace_period_s
        )

    async def bind(self, binding: Binding) -> None:
        """``Api.bind``."""
        await self.server.bind(self.request, binding)

    async def evict(
        self,
        namespace: str,
        name: str,
        *,
        preconditions: Preconditions | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        """``Api.evict``, with a grace period as kubectl may send it."""
        await self.server.evict(
            self.request,
            self.server.target(PODS, namespace, name, "eviction"),
            preconditions=preconditions,
            grace_period_s=grace_period_s,
        )


class Cluster(UserView):
    """An API server. Its own requests run as ``admin`` of ``system:masters``.

    ``now`` returns epoch seconds. ``history_events_max`` is the number of changes of each kind that
    watches and continue tokens can reach back; older ones get 410. A new cluster has the namespaces
    that kube-apiserver makes.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        rng: random.Random,
        history_events_max: int = 10_000,
        webhook_caller: WebhookCaller = no_caller,
    ) -> None:
        server = ApiServer(
            now=now, rng=rng, history_events_max=history_events_max, webhook_caller=webhook_caller
        )
        super().__init__(server, Request())

    @property
    def version(self) -> int:
        """The newest resourceVersion."""
        return self.server.store.version

    def call_webhooks_with(self, caller: WebhookCaller) -> None:
        """Replace the caller of admission webhooks."""
        self.server.admission.call = caller

    def compact(self) -> None:
        """Drop all history, like etcd's compaction. Older watches and continue tokens get 410."""
        self.server.store.compact()

    def snapshot(self) -> Snapshot:
        """Return a backup of all that is stored."""
        return self.server.store.snapshot()

    def restore(self, snapshot: Snapshot, *, bump: int = 0) -> None:
        """Restore a backup's objects and its version (plus ``bump``). Every watch ends."""
        self.server.store.restore(snapshot, bump=bump)

    def object_count(self, resource: Resource) -> int:
        """Return the number of stored objects of a kind."""
        return len(self.server.store.collection(resource.group, resource.plural).entries)


def _conforms(cluster: Cluster) -> Api:
    """Let mypy check that a Cluster is an Api."""
    return cluster
