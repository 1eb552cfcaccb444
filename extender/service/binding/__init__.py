"""Adapter pods get their nodes: the extender's verbs and the binder. Knows ``placing`` and
``watching``.
"""
