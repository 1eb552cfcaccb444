"""``vreplica plan``: show what one round of placing would do, or what a change would do."""

import argparse
import re
from typing import Any, Final

from extender.cli.query.options import add_where, where_from
from extender.cli.terminal.parsing import Commands, ask, setting

VPODS_MAX: Final = 10_000
NAMESPACE: Final = "what-if"
"""Of added vpods."""


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    plan = commands.add_parser(
        "plan",
        help="what one round of placing would do to objects of files or a cluster, and what if",
        epilog="exit status: 0 planned, 1 could not plan, 2 wrong options, 4 something would have "
        "no place (--check)",
    )
    add_where(plan)
    plan.add_argument(
        "--autoscale", action="store_true", help="also the number of pods that each pool needs"
    )
    plan.add_argument(
        "--compact", action="store_true", help="also what would be drained and compacted"
    )
    plan.add_argument(
        "--profile", metavar="NAME", default="", help="place every pool by this profile"
    )
    asked = plan.add_argument_group(
        "what if", "any of these prints what differs from the pools left alone"
    )
    asked.add_argument(
        "--drain",
        metavar="POD|NODE|ZONE",
        action="append",
        type=_target,
        default=[],
        help="emptied for good, as by a mark on the pods (kubectl drain alone moves nothing): "
        "pod/NAME, node/NAME or zone/NAME",
    )
    asked.add_argument(
        "--fail", metavar="POD|NODE|ZONE", action="append", type=_target, default=[],
        help="away and not back: what is out of service, and what rescheduleAfterSeconds would "
            "move",
    )  # fmt: skip
    asked.add_argument(
        "--add-vpods",
        metavar="N[xVREPLICAS]",
        type=_vpods,
        default=(0, 0),
        help="so many vpods more",
    )
    asked.add_argument(
        "--add-tenant", metavar="NAME=SLOTS", action="append", type=_tenant, default=[],
        help="a new tenant that asks for so many slots: what it gets, and who gives back how many",
    )  # fmt: skip
    asked.add_argument(
        "--set", metavar="FIELD=NUMBER", type=setting(over_time=False), action="append", default=[],
        help="slotsPerPod, minPods, maxPods or minPodsPerVPod of the AdapterPool",
    )  # fmt: skip
    asked.add_argument(
        "--diff", action="store_true", help="print what differs, also for --profile and --compact"
    )
    asked.add_argument("--pool", metavar="NAMESPACE/NAME", default="", help="of this pool only")
    asked.add_argument(
        "-n",
        "--namespace",
        default="",
        metavar="NAMESPACE",
        help="of --add-vpods (default: what-if)",
    )
    asked.add_argument(
        "--check", action="store_true", help="exit with 4 if something would have no place"
    )
    plan.set_defaults(command=_run)


def _vpods(text: str) -> tuple[int, int]:
    """``N`` or ``NxVREPLICAS``."""
    found = re.fullmatch(r"([0-9]{1,5})(?:x([0-9]{1,9}))?", text)
    if found is None or not 1 <= int(found[1]) <= VPODS_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not N or NxVREPLICAS, such as 20x8, N from 1 to {VPODS_MAX}"
        )
    return int(found[1]), int(found[2] or 1)


def _tenant(text: str) -> tuple[str, int]:
    """``NAME=SLOTS``. Whether a tenant may be called so is checked later."""
    found = re.fullmatch(r"([^=]+)=([0-9]{1,9})", text)
    if found is None or int(found[2]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SLOTS, such as team-x=40")
    return found[1], int(found[2])


def _target(text: str) -> str:
    """Check the form of ``pod/NAME``, ``node/NAME``, ``zone/NAME`` or a bare name. Whether the
    object exists is checked later, against the cluster.
    """
    if not re.fullmatch(r"(pod|node|zone)/.+|[^/]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not pod/NAME, node/NAME or zone/NAME")
    return text


def _request(options: argparse.Namespace) -> dict[str, Any]:
    """The body of ``POST /v1/plan``, without empty fields."""
    count, vreplicas = options.add_vpods
    namespace = options.namespace or NAMESPACE
    whole = {
        "pool": options.pool,
        "drain": options.drain,
        "fail": options.fail,
        "set": dict(options.set),
        "profile": options.profile,
        "addVPods": [
            {"namespace": namespace, "name": f"what-if-{number}", "vreplicas": vreplicas}
            for number in range(1, count + 1)
        ],
        "addTenants": [{"name": name, "slots": slots} for name, slots in options.add_tenant],
        "autoscale": options.autoscale,
        "compact": options.compact,
    }
    return {field: value for field, value in whole.items() if value}


def _run(options: argparse.Namespace) -> int:
    from extender.cli.query.plan import run_plan  # noqa: PLC0415
    from extender.cli.query.what_if import run_what_if  # noqa: PLC0415

    where = where_from(options)
    request = _request(options)
    differs = request.keys() & {"pool", "drain", "fail", "set", "addVPods", "addTenants"}
    differs |= {"profile"} if options.profile and not where.files else set()
    if differs or where.replica.url or options.diff or options.check:
        return ask(lambda: run_what_if(where, request, output=options.output, check=options.check))
    return ask(
        lambda: run_plan(
            where,
            output=options.output,
            autoscale=options.autoscale,
            compact=options.compact,
            profile=options.profile,
        )
    )
