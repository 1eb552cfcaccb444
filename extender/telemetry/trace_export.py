"""Exports spans through OpenTelemetry (``otel``, an extra of the package) if its variables ask for
it.
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
    """Trace if the environment sets one of ``ENDPOINT_VARIABLES``. Log a warning if the extra is
    missing.

    ``service`` is the ``service.name``, unless ``OTEL_SERVICE_NAME`` is set.
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
