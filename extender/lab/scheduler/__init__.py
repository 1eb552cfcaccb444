"""The loop of kube-scheduler 1.37: queue, cache, plugins, extender calls as real bytes,
preemption.
"""
