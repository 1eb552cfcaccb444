"""kube-scheduler 1.37's loop: queue, cache, plugins, extender calls over real bytes, preemption."""
