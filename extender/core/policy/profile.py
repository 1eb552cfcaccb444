"""``Profile``: how a pool's vreplicas are placed and taken away, by name (DESIGN 5.2).

A profile without plugins places by the round robin of ``plan``; one with plugins asks them. ``Rules`` names where we
differ from Knative on purpose; the profile ``knative`` switches all of them off.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rules:
    """Deliberate differences from Knative, each of which can be switched off to get its behaviour.

    ``keep_on_unavailable``: keep placements on pods that are pending, restarting or on a bad node (Knative drops
    them, so every restart of a pod moves its vreplicas). ``drain_waits_for_room``: what is on a pod marked
    unschedulable stays until another has room (Knative drops it at once). ``zero_means_none``: a vpod that wants 0
    vreplicas gets none (Knative gives it minReplicas).
    """

    keep_on_unavailable: bool = True
    drain_waits_for_room: bool = True
    zero_means_none: bool = True


DEFAULT_RULES: Final = Rules()
KNATIVE_RULES: Final = Rules(keep_on_unavailable=False, drain_waits_for_room=False, zero_means_none=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How one kind of pool is placed."""

    name: str
    rules: Rules = DEFAULT_RULES


DEFAULT_PROFILE: Final = Profile(name="default")
