"""Runs ``vreplica doctor``."""

import sys
import time

from extender.cli.doctor.checks.names import InstallationNames
from extender.cli.doctor.examine import examine
from extender.cli.doctor.fetch import fetch
from extender.cli.doctor.report import (
    as_document,
    as_table,
    exit_status,
    has_looked,
)
from extender.cli.terminal.cluster_access import ClusterAccess, open_cluster
from extender.cli.terminal.exit_status import ERROR
from extender.cli.terminal.output import Format, print_result
from extender.cli.terminal.replica_access import ReplicaAccess
from extender.kube.first_errors import describe_error
from extender.model.errors import VReplicaError

USER_AGENT = "vreplica-doctor"


async def run_doctor(
    access: ClusterAccess,
    *,
    namespace: str,
    names: InstallationNames,
    replica: ReplicaAccess | None,
    output: Format,
    strict: bool,
) -> int:
    """Examine the cluster, and the replica if there is one. Return the exit status of
    ``report``.
    """
    try:
        async with open_cluster(access, user_agent=USER_AGENT) as cluster:
            facts = await fetch(
                cluster, namespace=namespace, names=names, now_s=time.time(), replica=replica
            )
    except VReplicaError as error:
        print(f"vreplica: {describe_error(error)}", file=sys.stderr)
        return ERROR
    examined = examine(facts)
    print_result(as_document(examined), output, lambda: print(as_table(examined)))
    if not any(has_looked(one) for one in examined):
        print(
            "vreplica: this user may read nothing that the checks need: see the check rights",
            file=sys.stderr,
        )
    return exit_status(examined, strict=strict)
