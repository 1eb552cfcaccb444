"""kube-scheduler 1.36's loop: queue, cache, plugins, extender calls over real bytes, preemption."""
