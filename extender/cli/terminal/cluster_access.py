"""Opens the cluster that a command reads, with kubectl's options.

``--kubeconfig`` and ``--context`` mean the same as for kubectl. Without them, ``$KUBECONFIG``, the
pod's service account and ``~/.kube/config`` are tried (``kube.connection``). ``--namespace`` is for
names without one; its default is the context's. The ``Api`` that a command gets refuses to write.
"""

import argparse
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from extender.cli.terminal.progress import Progress
from extender.kube.api import ACCESS_REVIEWS, Api, ListOptions, Obj, Resource
from extender.model.names import COMPONENT

if TYPE_CHECKING:
    from extender.service.watching.caches import Caches

PAGE_OBJECTS: Final = 500


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The values of the options; "" if not given."""

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class OpenCluster:
    """A cluster to read. ``namespace``: for names without one, never "". ``server``: the API
    server's address. ``server_version``: asks for ``/version``; raises ApiError. ``review_access``:
    sends a SubjectAccessReview, which stores nothing, and returns the answer; raises ApiError.
    """

    api: Api
    namespace: str
    server: str
    server_version: Callable[[], Awaitable[Obj]]
    review_access: Callable[[Obj], Awaitable[Obj]]


def add_cluster_options(parser: argparse.ArgumentParser, *, namespace: bool = True) -> None:
    """Add ``--kubeconfig``, ``--context`` and ``-n/--namespace``, as a group in the help.

    ``namespace`` False: the command takes no names, and reads all namespaces.
    """
    group = parser.add_argument_group("cluster", "which cluster, as for kubectl")
    group.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="default: as kubectl finds it"
    )
    group.add_argument(
        "--context", metavar="NAME", default="", help="of the kubeconfig; default: its current one"
    )
    if namespace:
        group.add_argument(
            "-n",
            "--namespace",
            metavar="NAME",
            default="",
            help="of names without one; default: the context's",
        )


def access_of(options: argparse.Namespace) -> ClusterAccess:
    """Read the options of ``add_cluster_options``."""
    return ClusterAccess(options.kubeconfig, options.context, getattr(options, "namespace", ""))


@asynccontextmanager
async def open_cluster(
    access: ClusterAccess, *, user_agent: str = COMPONENT
) -> AsyncIterator[OpenCluster]:
    """Open the cluster for reading, until the block ends. Sends no request yet. Raises
    ConnectError.

    ``user_agent``: names the client in the API server's audit log.
    """
    from extender.kube.client import KubeApi  # noqa: PLC0415
    from extender.kube.read_only import ReadOnlyApi  # noqa: PLC0415

    async with await KubeApi.connect(
        kubeconfig=access.kubeconfig, context=access.context, user_agent=user_agent
    ) as api:
        namespace = access.namespace or api.namespace
        review_access = partial(api.create, ACCESS_REVIEWS, "")
        yield OpenCluster(
            ReadOnlyApi(api), namespace, api.server, api.server_version, review_access
        )


@asynccontextmanager
async def open_watched(access: ClusterAccess) -> AsyncIterator[tuple[OpenCluster, "Caches"]]:
    """Open the cluster, with caches that follow it until the block ends. Shows the progress of the
    first lists. Raises ConnectError, NotReadable.
    """
    from extender.service.watching.observer import watched  # noqa: PLC0415

    with Progress("first lists", unit="objects") as progress:
        async with (
            open_cluster(access) as cluster,
            watched(cluster.api, progress=progress) as caches,
        ):
            progress.end()
            yield cluster, caches


async def objects(api: Api, resource: Resource, options: ListOptions) -> AsyncIterator[Obj]:
    """List objects page by page, as kubectl does. Raises ApiError."""
    token = ""
    while True:
        page = await api.list_page(resource, options, limit=PAGE_OBJECTS, continue_token=token)
        for obj in page.items:
            yield obj
        token = page.continue_token
        if not token:
            return
