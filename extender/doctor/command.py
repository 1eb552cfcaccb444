"""``vreplica doctor``: connect, look, print."""

import sys
import time

from extender.core.errors import VReplicaError
from extender.doctor.examine import examine
from extender.doctor.fetch import fetch
from extender.doctor.report import EXIT_NOT_EXAMINED, exit_status, rendered
from extender.kube.client import KubeApi
from extender.kube.first_errors import told


async def run_doctor(
    *, kubeconfig: str, context: str, namespace: str, server: str, output: str, strict: bool
) -> int:
    """Examine the cluster that the kubeconfig names; the exit status is ``report``'s."""
    try:
        async with await KubeApi.connect(
            kubeconfig=kubeconfig, context=context, user_agent="vreplica-doctor"
        ) as api:
            facts = await fetch(api, namespace=namespace, now_s=time.time(), server=server)
    except VReplicaError as error:
        print(f"vreplica: {told(error)}", file=sys.stderr)
        return EXIT_NOT_EXAMINED
    examined = examine(facts)
    print(rendered(examined, output))
    return exit_status(examined, strict=strict)
