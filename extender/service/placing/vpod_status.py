"""The status of a VPod: placements, counts, and the conditions Scheduled, Available and Moved."""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from extender.engine.placing.plan import Decision
from extender.engine.state.availability import AVAILABLE, Availability, condition_of
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
    if not missing and explanation.is_satisfied:
        return Condition(SCHEDULED, "True", ALL_PLACED, _where(published, placements))
    reason = explanation.reason or ConflictReason.INSUFFICIENT_SLOTS
    message = (
        explanation.outcome()
        if decision.left or not missing
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
    condition = scheduled_condition(decision, placements)
    available = availability.condition()
    known = next((item for item in vpod.conditions if item.type == SCHEDULED), None)
    known_available = condition_of(vpod)
    if (
        dict(vpod.placements) == dict(placements)
        and vpod.scheduled_vreplicas == published
        and vpod.observed_generation == vpod.generation
        and vpod.ready_vreplicas == availability.ready
        and _says_the_same(known, condition)
        and _says_the_same(known_available, available)
        and (
            not availability.unserved or _message_of(known_available) == _stored_message(available)
        )
    ):
        return None
    written = [
        _written(vpod, condition, known, now),
        _written(vpod, available, known_available, now),
    ]
    moved = _moved(vpod, decision, placements, now)
    ours = {SCHEDULED, AVAILABLE, MOVED} if moved else {SCHEDULED, AVAILABLE}
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
            "conditions": [*others, *written, *moved],
        },
    }


def _message_of(known: Condition | None) -> str:
    return known.message if known is not None else ""


def _stored_message(condition: Condition) -> str:
    """A condition's message as it is stored."""
    return clean_note(condition.message)[:_MESSAGE_CHARS_MAX]


def _says_the_same(known: Condition | None, now: Condition) -> bool:
    return known is not None and (known.status, known.reason) == (now.status, now.reason)


def _written(vpod: VPod, condition: Condition, known: Condition | None, now: float) -> Obj:
    """A condition as it is stored. ``known``: the present one, whose transition time stays if the
    status is the same.
    """
    since = (
        known.last_transition_time if known is not None and known.status == condition.status else ""
    )
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": _stored_message(condition),
        "observedGeneration": vpod.generation,
        "lastTransitionTime": since or timestamp(now),
    }


def _moved(vpod: VPod, decision: Decision, placements: Mapping[str, int], now: float) -> list[Obj]:
    """The Moved condition, about the published vreplicas that this write takes away. [] if there
    are none: then the present condition stays.
    """
    wanted = decision.explanation.wanted
    moves = list(moves_made(decision.moves, vpod.placements, placements, wanted=wanted))
    if not moves:
        return []
    return [
        {
            "type": MOVED,
            "status": "True",
            "reason": str(moves[0].reason),
            "message": "; ".join(move.sentence() for move in moves)[:_MESSAGE_CHARS_MAX],
            "observedGeneration": vpod.generation,
            "lastTransitionTime": timestamp(now),
        }
    ]


def _plain(condition: Condition) -> Obj:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": condition.last_transition_time,
    }
