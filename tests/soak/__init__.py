"""The soak test: the installation of the end-to-end suite, for long, in real time, under faults
(``python -m tests.soak``).
"""
