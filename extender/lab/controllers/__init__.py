"""The controllers around it: StatefulSets, node lifecycle, garbage collection, and the kubelets'
stand-in.
"""
