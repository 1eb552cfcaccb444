"""``vreplica explain``: explains one vpod or adapter pod, from files, a running service, or the
live cluster.

A running service knows more: what is reserved but not written, and its earlier decisions with time
and reason. For a live cluster read directly, events and conditions tell of earlier decisions; for
files, conditions alone.
"""

import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final

from extender.cli.query.explain_tables import explain_tables
from extender.cli.query.files import read_files
from extender.cli.query.live import history_from_events, open_live, read_cluster
from extender.cli.query.plan import choose_profiles
from extender.cli.query.remote import ask_explain
from extender.cli.query.subject import Subject, resolve, subject_from
from extender.cli.query.where import Where
from extender.cli.terminal.console import Terminal
from extender.cli.terminal.exit_status import NOT_FOUND, OK, UNPLACED
from extender.cli.terminal.output import Format, print_result
from extender.cli.terminal.progress import Report, working
from extender.cli.terminal.replica import open_replica
from extender.engine.state.cluster_state import ClusterState
from extender.model.names import DEFAULT_NAMESPACE
from extender.whatif.explanation import (
    Answer,
    PastDecision,
    UnknownObject,
    explain_vpod,
    history_from_conditions,
    pool_of_vpod,
)
from extender.whatif.pod_explanation import explain_pod

FIXES_S: Final = 20.0
"""The time for trying changes."""


async def run_explain(where: Where, name: str, *, output: Format, check: bool) -> int:
    """Explain and print; return the exit status. Raises VReplicaError if there is no answer, except
    for an object that does not exist.
    """
    subject = subject_from(name, where.cluster.namespace)
    try:
        with working("explain", "reading and trying changes") as report:
            answer = await (
                _of_server(where, subject)
                if where.replica.url
                else _of_objects(where, subject, report)
            )
    except UnknownObject as error:
        print(f"vreplica: {error}", file=sys.stderr)
        return NOT_FOUND
    print_result(answer, output, lambda: explain_tables(Terminal(), answer))
    waits = answer.get("left", 0) if answer["kind"] == "VPod" else not answer["node"]
    return UNPLACED if check and waits else OK


async def _of_server(where: Where, subject: Subject) -> Any:
    key = f"{subject.namespace or DEFAULT_NAMESPACE}/{subject.name}"
    kinds = [subject.kind] if subject.kind else ["vpod", "pod"]
    unknown: UnknownObject | None = None
    async with open_replica(where.replica) as replica:
        for kind in kinds:
            try:
                return await ask_explain(replica, {kind: key})
            except UnknownObject as error:
                unknown = unknown or error
    raise unknown or UnknownObject(f"{key} does not exist")


async def _of_objects(where: Where, subject: Subject, report: Report) -> Answer:
    async with nullcontext() if where.files else open_live(where.cluster) as api:
        manifests = (
            await read_cluster(api, "explain", report)
            if api is not None
            else read_files(where.files, "explain")
        )
        state = manifests.state(where.profiles)
        kind, key = resolve(state, subject)
        events = await history_from_events(api, kind, key) if api is not None else []
    answer = explain(state, kind, key, events)
    choose_profiles(manifests, "", where.profiles, asked=str(answer["pool"]))
    return answer


def explain(
    state: ClusterState, kind: str, key: str, events: Sequence[PastDecision] = ()
) -> Answer:
    """Explain from objects that were read. ``events``: earlier decisions that events tell. A vpod's
    conditions tell of others.
    """
    until = time.monotonic() + FIXES_S

    def expired() -> bool:
        return time.monotonic() >= until

    if kind == "pod":
        return explain_pod(state, key, history=events, expired=expired)
    history = [*events, *history_from_conditions(pool_of_vpod(state, key).vpods[key])]
    history.sort(key=lambda one: one.at[:19], reverse=True)
    return explain_vpod(state, key, history=history, expired=expired)
