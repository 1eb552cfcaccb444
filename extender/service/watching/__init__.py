"""What the service sees of the cluster: caches, informers and foreign kinds. Imports no other
folder of the service.
"""
