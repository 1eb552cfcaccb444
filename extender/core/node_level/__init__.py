"""Adapter pods and nodes: where a pod may go, where it goes best, what it carries (DESIGN 5.7)."""
