"""The list of all mutants. One that does not apply any more, because the code has changed, has to
be looked at again.
"""

from typing import Final

from tests.mutants.balancing import BALANCING
from tests.mutants.binding import BINDING
from tests.mutants.certificates import CERTIFICATES
from tests.mutants.evictions import EVICTIONS, MAX_UNAVAILABLE, ROLLOUTS
from tests.mutants.exclusive import EXCLUSIVE
from tests.mutants.handing_over import HANDING_OVER
from tests.mutants.indexed import INDEXED
from tests.mutants.leading import LEADING
from tests.mutants.mutant import Mutant
from tests.mutants.state import CACHES, PLAN, POOL_STATE, SCALE_DOWN
from tests.mutants.tenancy import TENANCY
from tests.mutants.writing import COMMITTER, LOOPS

MUTANTS: Final[tuple[Mutant, ...]] = (
    *BINDING,
    *CACHES,
    *COMMITTER,
    *LOOPS,
    *LEADING,
    *SCALE_DOWN,
    *POOL_STATE,
    *PLAN,
    *BALANCING,
    *EXCLUSIVE,
    *INDEXED,
    *HANDING_OVER,
    *CERTIFICATES,
    *EVICTIONS,
    *ROLLOUTS,
    *MAX_UNAVAILABLE,
    *TENANCY,
)
