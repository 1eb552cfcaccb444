"""``python -m tests.conformance [DIR]``; see ``runner``."""

import sys

from tests.conformance.runner import main

sys.exit(main(sys.argv[1:]))
