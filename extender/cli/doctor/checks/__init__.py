"""All checks, in the order in which they are reported: the most fundamental first."""

from typing import Final

from extender.cli.doctor.checks.adapters import HANDOFF
from extender.cli.doctor.checks.descheduling import DESCHEDULING
from extender.cli.doctor.checks.installation import INSTALLATION
from extender.cli.doctor.checks.ledgers import LEDGERS
from extender.cli.doctor.checks.pods import PODS
from extender.cli.doctor.checks.pools import POOLS
from extender.cli.doctor.checks.replica import REPLICA
from extender.cli.doctor.checks.shared_pools import SHARED_POOLS
from extender.cli.doctor.checks.verdict import Check
from extender.cli.doctor.checks.webhooks import WEBHOOKS

CHECKS: Final[tuple[Check, ...]] = (
    *INSTALLATION,
    *WEBHOOKS,
    *SHARED_POOLS,
    *PODS,
    *LEDGERS,
    *POOLS,
    *DESCHEDULING,
    *HANDOFF,
    *REPLICA,
)
