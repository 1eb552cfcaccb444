"""Writes manifests/monitoring/dashboards/*.json and prometheusrule.yaml, and the chart's files."""

from tests.monitoring.files import made

for path, text in made().items():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
