"""The admission webhook: stamps adapter pods for our kube-scheduler, checks pods, pools and vpods,
and makes evictions wait.
"""
