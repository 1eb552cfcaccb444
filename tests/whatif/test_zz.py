from hypothesis import given, settings, reproduce_failure, HealthCheck
from tests.whatif.scenes import *
from tests.whatif.test_fixes import fixes_of, waits


@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenes())
def test_x(scene):
    if not waits(scene):
        return
    for fix in fixes_of(scene):
        if "MakeRoom" not in fix.field:
            continue
        decision = after(scene, fix, fix.after)
        assert decision is not None, fix
        assert decision.left == fix.left, fix
