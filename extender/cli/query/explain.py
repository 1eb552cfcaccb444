"""``vreplica explain``: explains one vpod or adapter pod, from files, a running service, or the
live cluster.

A running service knows more: what is reserved but not written, and its earlier decisions with time
and reason. For a live cluster read directly, events and conditions tell of earlier decisions; for
files, conditions alone.
"""

import sys
import time
from typing import Any, Final

from extender.cli.query.explain_tables import explain_tables
from extender.cli.query.live import open_live, read_cluster, told_by_events
from extender.cli.query.plan import choose_profiles
from extender.cli.query.remote import ask_explain
from extender.cli.query.subject import Subject, resolve, subject_from
from extender.cli.query.where import Where
from extender.cli.terminal.console import Terminal
from extender.cli.terminal.exit_status import NOT_FOUND, OK, UNPLACED
from extender.cli.terminal.output import Format, print_result
from extender.cli.terminal.progress import Tell, working
from extender.cli.terminal.replica import open_replica
from extender.engine.state.state import State
from extender.model.objects import split_key
from extender.whatif.explanation import (
    Answer,
    PastDecision,
    UnknownObject,
    explain_vpod,
    pool_of_vpod,
    told_by_status,
)
from extender.whatif.pod_explanation import explain_pod

FIXES_S: Final = 20.0
"""The time for trying changes."""
DEFAULT_NAMESPACE: Final = "default"


async def run_explain(where: Where, name: str, *, output: Format, check: bool) -> int:
    """Explain and print; return the exit status. Raises VReplicaError if there is no answer, except
    for an object that does not exist.
    """
    subject = subject_from(name, where.cluster.namespace)
    try:
        with working("explain", "reading and trying changes") as tell:
            answer = await (
                _of_server(where, subject)
                if where.replica.url
                else _of_objects(where, subject, tell)
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


async def _of_objects(where: Where, subject: Subject, tell: Tell) -> Answer:
    if where.files:
        manifests = await where.read("explain", tell)
        state = manifests.state(where.profiles)
        answer = explain(state, *resolve(state, subject))
        choose_profiles(manifests, "", where.profiles, asked=str(answer["pool"]))
        return answer
    async with open_live(where.cluster) as api:
        manifests = await read_cluster(api, "explain", tell)
        state = manifests.state(where.profiles)
        kind, key = resolve(state, subject)
        namespace, name = split_key(key)
        told = await told_by_events(api, namespace, "VPod" if kind == "vpod" else "Pod", name)
    answer = explain(state, kind, key, told)
    choose_profiles(manifests, "", where.profiles, asked=str(answer["pool"]))
    return answer


def explain(state: State, kind: str, key: str, told: list[PastDecision] | None = None) -> Answer:
    """Explain from objects that were read. ``told``: earlier decisions from events, in addition to
    the vpod's conditions.
    """
    until = time.monotonic() + FIXES_S

    def expired() -> bool:
        return time.monotonic() >= until

    if kind == "pod":
        return explain_pod(state, key, history=told or (), expired=expired)
    history = [*(told or ()), *told_by_status(pool_of_vpod(state, key).vpods[key])]
    history.sort(key=lambda one: one.at[:19], reverse=True)
    return explain_vpod(state, key, history=history, expired=expired)
