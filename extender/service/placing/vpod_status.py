"""The status of a VPod: placements, counts, and the conditions Scheduled, Available and Moved.
Objects of foreign kinds get the same conditions if their kind's declaration says where
(``foreign_status``).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from extender.engine.placing.plan import Decision
from extender.engine.state.availability import Availability, condition_of
from extender.kube.api import VPODS, Obj
from extender.kube.events import clean_note
from extender.model.counted import counted, counted_are
from extender.model.decode import vpod_from
from extender.model.moves import moves_made
from extender.model.objects import Condition, VPod
from extender.model.reasons import ConflictReason
from extender.model.timestamps import timestamp
from extender.service.watching.sources import StatusWrite

SCHEDULED: Final = "Scheduled"
MOVED: Final = "Moved"
"""Condition about a vpod's last move: why, from where and to where (I4)."""
ALL_PLACED: Final = "AllPlaced"
_MESSAGE_CHARS_MAX: Final = 1024
NAMED_PODS_MAX: Final = 8
"""Pods named in the message of a vpod that is placed."""

StatusWriter = Callable[
    [VPod, Decision, Mapping[str, int], Availability, float], StatusWrite | None
]
"""(vpod, decision, placements to publish, how these are served, epoch seconds) -> the write. None
if the status says the same already.
"""


def vpod_status(
    vpod: VPod,
    decision: Decision,
    placements: Mapping[str, int],
    availability: Availability,
    now: float,
) -> StatusWrite | None:
    """The ``StatusWriter`` of VPods."""
    patch = status_patch(vpod, decision, placements, availability, now)
    return None if patch is None else StatusWrite(VPODS, patch, vpod_from)


def scheduled_condition(decision: Decision, placements: Mapping[str, int]) -> Condition:
    """The Scheduled condition after ``placements`` have been written."""
    explanation, published = decision.explanation, sum(placements.values())
    missing = max(0, explanation.wanted - published)
    if not missing and explanation.exceeds_quota:
        note = clean_note(explanation.outcome())
        return Condition(SCHEDULED, "False", str(explanation.told_reason), note)
    if not missing and explanation.is_satisfied:
        return Condition(SCHEDULED, "True", ALL_PLACED, _where(published, placements))
    reason = explanation.reason or ConflictReason.INSUFFICIENT_SLOTS
    message = (
        explanation.outcome()
        if decision.pending or not missing
        else f"{missing} of {counted_are(explanation.wanted, 'vreplica')} not written yet"
        + (f": {explanation.detail}" if explanation.detail else "")
    )
    # A plugin or the API server may have written part of the message.
    return Condition(SCHEDULED, "False", str(reason), clean_note(message))


def _where(published: int, placements: Mapping[str, int]) -> str:
    """The message of a vpod that is placed. ``kubectl get -o wide`` shows it, because a printer
    column cannot show the list of placements.
    """
    if not placements:
        return "no vreplicas are wanted"
    named = ", ".join(
        f"{count} on {name}" for name, count in islice(placements.items(), NAMED_PODS_MAX)
    )
    more = len(placements) - NAMED_PODS_MAX
    what = "1 vreplica is placed" if published == 1 else f"all {published} vreplicas are placed"
    text = f"{what}: {named}" + (f", and {counted(more, 'pod')} more" if more > 0 else "")
    return text[:_MESSAGE_CHARS_MAX]


def status_patch(
    vpod: VPod,
    decision: Decision,
    placements: Mapping[str, int],
    availability: Availability,
    now: float,
) -> Obj | None:
    """The merge patch of status that publishes ``placements``. None if the status says the same
    already.

    The vpod's version is a precondition: if the vpod changes first, the write is a Conflict. A
    condition with only another message is not written, because messages count pods and would change
    with every new pod. But a condition that names pods which do not serve is written when it would
    name others.
    """
    published = sum(placements.values())
    if (
        dict(vpod.placements) == dict(placements)
        and vpod.scheduled_vreplicas == published
        and vpod.observed_generation == vpod.generation
        and vpod.ready_vreplicas == availability.ready
        and have_conditions(vpod, decision, placements, availability)
    ):
        return None
    written = conditions_of(vpod, decision, placements, availability, now)
    ours = {item.type for item in written}
    others = [_plain(item) for item in vpod.conditions if item.type not in ours]
    return {
        "metadata": {"resourceVersion": vpod.resource_version, "uid": vpod.uid},
        "status": {
            "observedGeneration": vpod.generation,
            "placements": [
                {"podName": name, "vreplicas": count} for name, count in placements.items()
            ],
            "scheduledVReplicas": published,
            "readyVReplicas": availability.ready,
            "conditions": [
                *others,
                *({**_plain(item), "observedGeneration": vpod.generation} for item in written),
            ],
        },
    }


def have_conditions(
    vpod: VPod, decision: Decision, placements: Mapping[str, int], availability: Availability
) -> bool:
    """Whether the vpod's stored conditions say what ``conditions_of`` would, but for messages."""
    available = availability.condition()
    known_available = condition_of(vpod)
    return (
        _says_the_same(_scheduled(vpod), scheduled_condition(decision, placements))
        and _says_the_same(known_available, available)
        and (
            not availability.unserved or _message_of(known_available) == _stored_message(available)
        )
    )


def conditions_of(
    vpod: VPod,
    decision: Decision,
    placements: Mapping[str, int],
    availability: Availability,
    now: float,
) -> list[Condition]:
    """The conditions to store with ``placements``: Scheduled, Available, and Moved if this write
    takes vreplicas away that are moved. Otherwise the stored Moved stays.
    """
    scheduled, available = scheduled_condition(decision, placements), availability.condition()
    return [
        _written(scheduled, _scheduled(vpod), now),
        _written(available, condition_of(vpod), now),
        *_moved(vpod, decision, placements, now),
    ]


def is_scheduled(vpod: VPod) -> bool:
    """Whether the vpod's status says that all its vreplicas are placed. If an object of a foreign
    kind does not say, its placements count.
    """
    known = _scheduled(vpod)
    if known is None and vpod.source:
        return sum(vpod.placements.values()) >= vpod.vreplicas
    return known is not None and known.status == "True"


def _scheduled(vpod: VPod) -> Condition | None:
    """The stored condition Scheduled."""
    return next((item for item in vpod.conditions if item.type == SCHEDULED), None)


def _message_of(known: Condition | None) -> str:
    return known.message if known is not None else ""


def _stored_message(condition: Condition) -> str:
    """A condition's message as it is stored."""
    return clean_note(condition.message)[:_MESSAGE_CHARS_MAX]


def _says_the_same(known: Condition | None, now: Condition) -> bool:
    return known is not None and (known.status, known.reason) == (now.status, now.reason)


def _written(condition: Condition, known: Condition | None, now: float) -> Condition:
    """A condition as it is stored. ``known``: the present one, whose transition time stays if the
    status is the same.
    """
    since = (
        known.last_transition_time if known is not None and known.status == condition.status else ""
    )
    return replace(
        condition,
        message=_stored_message(condition),
        last_transition_time=since or timestamp(now),
    )


def _moved(
    vpod: VPod, decision: Decision, placements: Mapping[str, int], now: float
) -> list[Condition]:
    """The Moved condition, about the published vreplicas that this write takes away. [] if there
    are none: then the present condition stays.
    """
    wanted = decision.explanation.wanted
    moves = list(moves_made(decision.moves, vpod.placements, placements, wanted=wanted))
    if not moves:
        return []
    message = "; ".join(move.sentence() for move in moves)[:_MESSAGE_CHARS_MAX]
    return [Condition(MOVED, "True", str(moves[0].reason), message, timestamp(now))]


def _plain(condition: Condition) -> Obj:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": condition.last_transition_time,
    }
