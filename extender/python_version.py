"""The check for the oldest supported Python. Older ones must be able to parse this module, so it
uses nothing newer than Python 3.6.
"""

import sys

PYTHON_MIN = (3, 11)


def python_problem(version: "tuple[int, ...]", executable: str) -> str:
    """Return why this Python cannot run the program and what to do, or "" if it can."""
    if version[:2] >= PYTHON_MIN:
        return ""
    wanted, found = ".".join(map(str, PYTHON_MIN)), ".".join(map(str, version[:3]))
    return (
        f"needs Python {wanted} or later, and {executable} is {found}: make the environment anew "
        f"with a newer one"
    )


def refuse_old_python() -> None:
    """End the program with one line if Python is too old: it could not even parse the other
    modules.
    """
    problem = python_problem(tuple(sys.version_info[:3]), sys.executable)
    if problem:
        sys.exit(f"vreplica: {problem}")
