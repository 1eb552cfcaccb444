"""``python -m tests.differential PART ...``: the embedded cluster beside real Kubernetes, on
generated inputs.

``api``: the embedded API server against kube-apiserver. ``scheduler``: its scheduler loop against
kube-scheduler. Each part has its own options (``PART --help``); the exit code is 0 when every
difference found is a listed one.
"""

import sys
from importlib import import_module
from typing import Final

PARTS: Final = {
    "api": "tests.differential.api_run",
    "scheduler": "tests.differential.scheduler_run",
}


def main(arguments: list[str]) -> int:
    """Runs one part; its module is imported only then."""
    if not arguments or arguments[0] not in PARTS:
        sys.stderr.write(f"usage: python -m tests.differential {{{','.join(PARTS)}}} ...\n")
        return 2
    return int(import_module(PARTS[arguments[0]]).main(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
