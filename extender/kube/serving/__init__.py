"""The HTTP listener under both servers that Kubernetes calls: limits for connections, requests and
bodies.
"""
