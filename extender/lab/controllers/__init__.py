"""The cluster's controllers: StatefulSets, node lifecycle, garbage collection, and a stand-in for
kubelets.
"""
