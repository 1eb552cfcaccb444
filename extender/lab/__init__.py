"""The embedded cluster: API server semantics, controllers and kube-scheduler's loop in one
process.
"""
