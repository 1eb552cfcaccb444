"""``vreplica plan`` with a change: what would move, wait and grow, compared with the same cluster
left alone.
"""

from collections.abc import Mapping
from typing import Any

from extender.cli.query.plan import choose_profiles
from extender.cli.query.remote import ask_plan
from extender.cli.query.what_if_tables import what_if_tables
from extender.cli.query.where import Where
from extender.cli.terminal.console import Terminal
from extender.cli.terminal.exit_status import OK, UNPLACED
from extender.cli.terminal.output import Format, print_result
from extender.cli.terminal.progress import Report, working
from extender.model.errors import InvalidObject
from extender.whatif.left_out import pools_asked
from extender.whatif.request import change_from, pool_from
from extender.whatif.snapshot import Snapshot
from extender.whatif.whatif import what_if


async def run_what_if(
    where: Where, request: Mapping[str, Any], *, output: Format, check: bool
) -> int:
    """Answer a request of ``POST /v1/plan`` and print; return the exit status. It is ``UNPLACED``
    with ``check`` if something has no place. Raises VReplicaError.
    """
    with working("plan", "reading and planning") as report:
        answer = await _answer(where, request, report)
    print_result(answer, output, lambda: what_if_tables(Terminal(), answer))
    return UNPLACED if check and answer["summary"]["unplacedAfter"] else OK


async def _answer(where: Where, request: Mapping[str, Any], report: Report) -> Any:
    if where.replica.url:
        return await ask_plan(where.replica, request)
    manifests = await where.read("plan", report)
    asked = pool_from(request)
    choose_profiles(manifests, "", where.profiles, asked=asked)
    state = manifests.state(where.profiles)
    known = sorted(pool.key for pool in manifests.pools)
    if asked and asked not in known:
        raise InvalidObject(
            "plan", "pool", f"{asked} is not known (known: {', '.join(known[:10]) or 'none'})"
        )
    keys = [asked] if asked else pools_asked(state)
    one = asked or (known[0] if len(known) == 1 else "")
    change = change_from(request, pool=one)
    return what_if(Snapshot.of(state, keys, bounded=False), change)
