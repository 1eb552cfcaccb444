"""Knative's scheduler package for Python callers: its types as protocols, and schedulers that call
this service.

A controller that keeps placements in the statuses of its own objects calls ``schedule`` for each
object that changes, and publishes the result. It calls again if the answer says so, as with
Knative's ``Scheduler.Schedule``::

    urls, pool = ["http://127.0.0.1:10261"], "knative-eventing/dispatcher"
    async with HttpScheduler(urls, pool=pool) as scheduler:
        try:
            placements = await scheduler.schedule(vpod)
        except InsufficientSlots as error:
            placements = error.placements       # what has a place is committed; publish it
            call_again_in_s = error.retry_after_s

``schedule`` returns after the placements are in the ledgers of the adapter pods. A repeated call
returns the same answer.

``extender.scheduling_api.statefulset`` is Knative's package ``scheduler/statefulset``: a scheduler
that is also given the controller's ``VPodLister`` and ``Evictor``, and calls them.

Names follow Python. Knative's names of functions and methods are aliases (``GetTotalVReplicas``,
``Schedule``). An object may also have Knative's getters instead of attributes (``KnativeVPod``).
"""

from extender.model.placements import (
    Placement,
    get_placement_for_pod,
    get_pod_count,
    get_total_vreplicas,
)
from extender.scheduling_api.http_scheduler import REPLY_BYTES_MAX, HttpScheduler
from extender.scheduling_api.scheduler import (
    Evictor,
    InsufficientSlots,
    NotScheduled,
    RequestRefused,
    Scheduler,
    SchedulerFunc,
    SchedulingError,
    StaleVPod,
    VPodLister,
)
from extender.scheduling_api.vpods import AnyVPod, CallersVPod, KnativeVPod, NamespacedName, VPod

__all__ = [
    "REPLY_BYTES_MAX",
    "AnyVPod",
    "CallersVPod",
    "Evictor",
    "GetPlacementForPod",
    "GetPodCount",
    "GetTotalVReplicas",
    "HttpScheduler",
    "InsufficientSlots",
    "KnativeVPod",
    "NamespacedName",
    "NotScheduled",
    "Placement",
    "RequestRefused",
    "Scheduler",
    "SchedulerFunc",
    "SchedulingError",
    "StaleVPod",
    "VPod",
    "VPodLister",
    "get_placement_for_pod",
    "get_pod_count",
    "get_total_vreplicas",
]

GetTotalVReplicas = get_total_vreplicas
GetPlacementForPod = get_placement_for_pod
GetPodCount = get_pod_count
