"""The embedded cluster: an API server, controllers and kube-scheduler's loop in one process."""
