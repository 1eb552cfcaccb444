"""The check of the replica at ``--server``."""

from typing import Final

from extender.cli.doctor.checks.facts import Facts
from extender.cli.doctor.checks.verdict import Check, CheckResult, Notes
from extender.model.reading import mapping, mappings, text, texts


def _replica(facts: Facts) -> CheckResult:
    replica = facts.replica
    notes = Notes()
    if replica is None:
        return notes.result("", nothing="was not asked (--server URL)")
    if replica.problem:
        notes.errors.append(replica.problem)
    else:
        if replica.ready.strip() != "ok":
            notes.errors.append(
                f"{replica.url} is not ready: {' '.join(replica.ready.split())[:200]}"
            )
        configuration = mapping(replica.state, "configuration")
        if problem := text(configuration, "problem"):
            notes.errors.append(f"its configuration file is not used: {problem[:300]}")
        if waiting := texts(configuration, "needsRestart"):
            notes.warnings.append(f"its configuration needs a restart: {', '.join(waiting)[:200]}")
        _compare_leaders(facts, notes)
    return notes.result(
        f"{replica.url} is ready; it sees {text(replica.state, 'leader')[:100] or 'nobody'} lead",
        fix=f"Look at its log. For a pod: kubectl -n {facts.namespace} port-forward POD 10261, "
        f"--server http://127.0.0.1:10261.",
    )


def _compare_leaders(facts: Facts, notes: Notes) -> None:
    """Compare the holder that the replica sees for each Lease with that in the API server."""
    if facts.replica is None:
        return
    for seen in mappings(facts.replica.state, "leases"):
        lease = facts.of("leases").named(text(seen, "lease"), facts.namespace)
        holder = text(lease, "spec", "holderIdentity") if lease is not None else ""
        if holder and text(seen, "leader") and holder != text(seen, "leader"):
            notes.warnings.append(
                f"it sees {text(seen, 'leader')[:100]} lead by {text(seen, 'lease')[:100]}, the "
                f"Lease is held by {holder[:100]}"
            )


REPLICA: Final = (Check("replica", "Is the replica at --server well?", (), _replica),)
