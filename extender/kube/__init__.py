"""The Kubernetes edge: the ``Api`` Protocol, its real form, reflectors, leader election and
events.
"""
