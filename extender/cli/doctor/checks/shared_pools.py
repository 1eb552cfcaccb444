"""The check of several installations in one cluster: no pool may have two of them.

Each would place the pool's vpods, and refuse what the other writes. Installations are known by
their webhooks, which are called for the namespaces whose pools they serve. One without a webhook is
not seen.
"""

from typing import Final

from extender.cli.doctor.checks.facts import Facts
from extender.cli.doctor.checks.registrations import (
    MUTATING_PLURAL,
    labels_of_pods,
    stampers,
)
from extender.cli.doctor.checks.verdict import Check, CheckResult, Notes
from extender.model.counted import counted
from extender.model.reading import key_of, text


def _shared(facts: Facts) -> CheckResult:
    notes, webhooks = Notes(), stampers(facts)
    pools = facts.of("adapterpools").items
    for pool in pools:
        namespace, labels = text(pool, "metadata", "namespace"), labels_of_pods(facts, pool)
        serving = {one.called_at: one.name for one in webhooks if one.stamps(namespace, labels)}
        if len(serving) > 1:
            who = " and ".join(f"{name} ({at})" for at, name in sorted(serving.items()))
            notes.errors.append(
                f"pods of AdapterPool {key_of(pool)} are stamped by the webhooks of {who:.400}"
            )
    number = len({one.called_at for one in webhooks})
    return notes.result(
        f"no pool has two installations, of {counted(number, 'installation')} with a webhook",
        nothing=facts.none_of("adapterpools") or ("" if webhooks else "no webhook stamps pods"),
        fix="Give each installation the namespaces of its own pools: config.pools.namespaces of "
        "the chart (docs/install.md, two installations). Uninstall one that is no longer wanted.",
    )


SHARED_POOLS: Final = (
    Check(
        "shared-pools",
        "Has every pool one installation only?",
        (MUTATING_PLURAL, "adapterpools", "statefulsets", "namespaces"),
        _shared,
    ),
)
