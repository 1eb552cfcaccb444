"""``Config``: Knative's ``statefulset.Config``, and how it compares with the AdapterPool."""

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from extender.scheduling_api.scheduler import Evictor, SchedulingError, VPodLister

REFRESH_PERIOD_S: Final = 100.0
"""AdapterPool's own default for a look at a pool's size."""
RETRY_PERIOD_S: Final = 1.0
"""Knative's default."""


class ConfigMismatch(SchedulingError):
    """The AdapterPool has another StatefulSet than the configuration."""

    def __init__(self, message: str) -> None:
        super().__init__(message, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Knative's ``statefulset.Config``, and where the service is.

    ``urls``, ``tls``, ``ca_file``, ``token_file``: as in ``HttpScheduler``. ``pool``: the name of
    the AdapterPool; by default it is that of the StatefulSet. ``kind``, ``group``: those of the
    listed vpods; by default Placeable and duck.knative.dev. Two controllers with one pool need two
    kinds, because what this one's list lacks is released. ``pod_capacity`` and ``min_replicas`` are
    settings of the AdapterPool (``slotsPerPod``; ``minPods`` and ``minPodsPerVPod``); where they
    are given, they are compared with it; a difference is logged, and the AdapterPool counts.
    ``pod_lister`` returns a pod by name, None if it is gone;
    only the evictor sees it.
    """

    urls: Sequence[str]
    stateful_set_namespace: str
    stateful_set_name: str
    vpod_lister: VPodLister
    evictor: Evictor | None = None
    pod_lister: Callable[[str], Any] | None = None
    kind: str = ""
    group: str = ""
    pool: str = ""
    pod_capacity: int | None = None
    min_replicas: int | None = None
    refresh_period_s: float = REFRESH_PERIOD_S
    retry_period_s: float = RETRY_PERIOD_S
    tls: ssl.SSLContext | None = None
    ca_file: str | Path = ""
    token_file: str | Path = ""

    def __post_init__(self) -> None:
        if not self.refresh_period_s > 0 or not self.retry_period_s > 0:
            raise ValueError("Config.refresh_period_s and retry_period_s must be over 0 s")


_COMPARED: Final = (
    # The field of Config, and the AdapterPool's, as /state.json and the object call it.
    ("pod_capacity", "capacity", "slotsPerPod"),
    ("min_replicas", "minPods", "minPods"),
    ("min_replicas", "minPodsPerVPod", "minPodsPerVPod"),
)


def compare(config: Config, pool: Mapping[str, Any]) -> list[str]:
    """Return in which settings a pool of ``/state.json`` differs; it counts. Raises ConfigMismatch
    if it is the pool of another StatefulSet.
    """
    if pool.get("statefulSet") != config.stateful_set_name:
        raise ConfigMismatch(
            f"Config.stateful_set_name is {config.stateful_set_name}, and spec.statefulSet of "
            f"AdapterPool {pool['name']} is {pool.get('statefulSet')}: change one of them"
        )
    return [
        f"Config.{name} is {wanted}, and spec.{in_spec} of AdapterPool {pool['name']} is "
        f"{pool.get(field)}, which counts: change one of them"
        for name, field, in_spec in _COMPARED
        if (wanted := getattr(config, name)) is not None and pool.get(field) != wanted
    ]
