"""All targets by name."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tests.fuzz.answer_targets import (
    DecisionsQueryTarget,
    ExplainQueryTarget,
    OverviewRequestTarget,
    PlanRequestTarget,
    StreamQueryTarget,
)
from tests.fuzz.callers_target import CallersSocketTarget
from tests.fuzz.document_targets import (
    ConfigTarget,
    KnativeTarget,
    LedgerTarget,
    ProfileTarget,
    QuantityTarget,
    SchedulerConfigTarget,
)
from tests.fuzz.extender_targets import (
    BindTarget,
    FilterTarget,
    PreemptTarget,
    ScheduleTarget,
    StateQueryTarget,
)
from tests.fuzz.file_targets import ConfigFileTarget, ExplainTarget, PlanTarget
from tests.fuzz.object_targets import KINDS, ForeignTarget, LeaseTarget, ObjectTarget
from tests.fuzz.recording_target import RecordingTarget
from tests.fuzz.socket_targets import ExtenderSocketTarget, WebhookSocketTarget
from tests.fuzz.target import Target
from tests.fuzz.webhook_targets import ReviewTarget

TARGETS: Final[Mapping[str, Callable[[], Target]]] = {
    "filter": partial(FilterTarget, "filter"),
    "prioritize": partial(FilterTarget, "prioritize"),
    "preempt": partial(PreemptTarget, "preempt"),
    "bind": partial(BindTarget, "bind"),
    "schedule": partial(ScheduleTarget, "schedule"),
    "state-query": partial(StateQueryTarget, "state-query"),
    "explain-query": partial(ExplainQueryTarget, "explain-query"),
    "plan-request": partial(PlanRequestTarget, "plan-request"),
    "overview-request": partial(OverviewRequestTarget, "overview-request"),
    "decisions-query": partial(DecisionsQueryTarget, "decisions-query"),
    "stream-query": partial(StreamQueryTarget, "stream-query"),
    "mutate": partial(ReviewTarget, "mutate"),
    "validate": partial(ReviewTarget, "validate"),
    "ledger": LedgerTarget,
    "quantity": QuantityTarget,
    "config": ConfigTarget,
    "config-file": ConfigFileTarget,
    "profile": ProfileTarget,
    "knative": KnativeTarget,
    "scheduler-config": SchedulerConfigTarget,
    "plan": PlanTarget,
    "explain": ExplainTarget,
    "recording": RecordingTarget,
    **{kind: partial(ObjectTarget, kind) for kind in KINDS},
    "foreign": ForeignTarget,
    "lease": LeaseTarget,
    "extender-http": partial(ExtenderSocketTarget, "extender-http"),
    "callers-http": partial(CallersSocketTarget, "callers-http"),
    "webhook-http": WebhookSocketTarget,
}
