"""The dashboards and alerts under manifests/monitoring, held to what the programs export.

``python -m tests.monitoring`` writes the dashboards and the PrometheusRule anew.
"""
