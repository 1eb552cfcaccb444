"""``vreplica top``: it looks at a replica, or watches a cluster, and shows pools, pods and vpods
that wait.
"""
