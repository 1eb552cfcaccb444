"""What kube-scheduler is answered about nodes, and what a bind writes on the pod. Pure; knows
``engine``.
"""
