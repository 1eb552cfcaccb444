"""Settings of all property tests, and what collecting thousands of tests leaves to the garbage
collector.
"""

import gc

from hypothesis import HealthCheck, settings

settings.register_profile(
    "any machine",  # how long an input takes says something about the machine, not about the code
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("any machine")
gc.disable()  # until all is collected: nearly nothing of it is garbage


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end. Each full collection would walk them all again."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
