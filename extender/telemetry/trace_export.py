"""Where spans go: nowhere, or by OpenTelemetry (``otel``, an extra of the package) where its
variables ask for it.
"""

import logging
import os
from collections.abc import Mapping
from typing import Final

from extender.telemetry.tracing import install

_log: Final = logging.getLogger(__name__)

ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
DISABLED_VARIABLE: Final = "OTEL_SDK_DISABLED"


def start(service: str, environment: Mapping[str, str] = os.environ) -> None:
    """Trace if the environment asks for it: one of ``ENDPOINT_VARIABLES`` is set. Where the extra
    is missing, that is logged.

    ``service``: ``service.name``, unless ``OTEL_SERVICE_NAME`` is set.
    """
    wanted = next((name for name in ENDPOINT_VARIABLES if environment.get(name)), "")
    if not wanted or environment.get(DISABLED_VARIABLE, "").lower() == "true":
        return
    try:
        from extender.telemetry.otel import OtelTracer, exporting  # noqa: PLC0415
    except ImportError as error:
        _log.warning(
            "%s is set, but nothing is traced: %s; install vreplica-scheduler[otel]", wanted, error
        )
        return
    install(OtelTracer(exporting(service, environment)))
    _log.info("spans go to %s", environment[wanted])
