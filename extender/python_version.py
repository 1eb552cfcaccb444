"""Which Python this needs. Every Python 3 must be able to read this module: nothing in it is newer
than 3.6.
"""

import sys

PYTHON_MIN = (3, 11)


def python_problem(version: "tuple[int, ...]", executable: str) -> str:
    """Why that Python cannot run us, and what to do; "" if it can."""
    if version[:2] >= PYTHON_MIN:
        return ""
    wanted, found = ".".join(map(str, PYTHON_MIN)), ".".join(map(str, version[:3]))
    return (
        f"needs Python {wanted} or later, and {executable} is {found}: make the environment anew "
        f"with a newer one"
    )


def refuse_old_python() -> None:
    """End the program with one line where Python is too old: what comes next could not even be
    read.
    """
    problem = python_problem(tuple(sys.version_info[:3]), sys.executable)
    if problem:
        sys.exit(f"vreplica: {problem}")
