"""What a cold start cannot be quicker than: a new Python, the service's API client, and all lists
that it needs, read and dropped.

``python -m tests.bench.peers.raw_lists --kubeconfig FILE`` ends when all is read.
"""

import argparse
import asyncio

import uvloop

from extender.kube.api import ADAPTERPOOLS, NAMESPACES, NODES, PODS, STATEFULSETS, VPODS, Resource
from extender.kube.client import KubeApi

KINDS = (PODS, NODES, NAMESPACES, STATEFULSETS, ADAPTERPOOLS, VPODS)


async def read(kubeconfig: str) -> int:
    """How many objects there are."""
    async with await KubeApi.connect(kubeconfig=kubeconfig) as api:
        return sum(await asyncio.gather(*(_count(api, kind) for kind in KINDS)))


async def _count(api: KubeApi, kind: Resource) -> int:
    page = await api.list_page(kind)
    count = len(page.items)
    while page.continue_token:
        page = await api.list_page(kind, continue_token=page.continue_token)
        count += len(page.items)
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    uvloop.run(read(parser.parse_args().kubeconfig))
