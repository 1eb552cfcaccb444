"""Answers to kube-scheduler about nodes, and the ledger that a bind writes on the pod. Pure."""
