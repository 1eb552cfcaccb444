"""The kustomize base and components, generated from the Helm chart: ``python -m tests.manifests``
(``make manifests``).
"""
