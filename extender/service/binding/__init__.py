"""The extender's verbs and the binder, which find nodes for adapter pods. Imports ``placing`` and
``watching``.
"""
