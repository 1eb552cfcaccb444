"""Asks a running replica. It also knows what is reserved, and its earlier decisions."""

from collections.abc import Mapping
from typing import Any

from extender.cli.terminal.replica import Refused, Replica, ReplicaError, Unreachable, open_replica
from extender.cli.terminal.replica_access import ReplicaAccess
from extender.whatif.explanation import UnknownObject


async def ask_explain(replica: Replica, parameters: Mapping[str, str]) -> dict[str, Any]:
    """``GET /v1/explain``. Raises ReplicaError, UnknownObject."""
    try:
        return await replica.get("/v1/explain", parameters)
    except ReplicaError as error:
        raise _in_words_of_the_question(error) from error


async def ask_plan(access: ReplicaAccess, request: Mapping[str, Any]) -> dict[str, Any]:
    """``POST /v1/plan``. Raises ReplicaError, UnknownObject, InvalidObject for files that are not
    certificates.
    """
    try:
        async with open_replica(access) as replica:
            return await replica.post("/v1/plan", dict(request))
    except ReplicaError as error:
        raise _in_words_of_the_question(error) from error


def _in_words_of_the_question(error: ReplicaError) -> Exception:
    if isinstance(error, Unreachable):
        return Unreachable(f"{error}, without --server the cluster itself is read")
    if error.status != 404:
        return error
    if isinstance(error, Refused):
        return UnknownObject(error.said)
    return ReplicaError(f"{error}; it does not know the question: is it of this version?", 404)
