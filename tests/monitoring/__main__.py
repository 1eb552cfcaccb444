"""Writes manifests/monitoring/dashboards/*.json and prometheusrule.yaml."""

from tests.monitoring.files import made

for path, text in made().items():
    path.write_text(text)
