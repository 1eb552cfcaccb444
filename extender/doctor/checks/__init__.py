"""The checks, all of them, in the order in which they are told: what everything rests on comes first."""

from typing import Final

from extender.doctor.checks.installation import INSTALLATION
from extender.doctor.checks.ledgers import LEDGERS
from extender.doctor.checks.pods import PODS
from extender.doctor.checks.pools import POOLS
from extender.doctor.checks.replica import REPLICA
from extender.doctor.checks.webhooks import WEBHOOKS
from extender.doctor.verdict import Check

CHECKS: Final[tuple[Check, ...]] = (*INSTALLATION, *WEBHOOKS, *PODS, *LEDGERS, *POOLS, *REPLICA)
