"""Where the objects come from: files, a running service, or the live cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.cli.query.files import read_files
from extender.cli.query.live import open_live, read_cluster
from extender.cli.terminal.cluster_access import ClusterAccess
from extender.cli.terminal.progress import Report, report_nothing
from extender.cli.terminal.replica_access import ReplicaAccess
from extender.engine.policy.profile import Profile
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.engine.state.manifests import Manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """``files`` or ``replica``; with neither, the ``cluster``. ``profiles``: all that pools may
    name. ``cluster.namespace``: for names without one, "" for any.
    """

    files: tuple[str, ...] = ()
    replica: ReplicaAccess = field(default_factory=ReplicaAccess)
    cluster: ClusterAccess = field(default_factory=ClusterAccess)
    profiles: Mapping[str, Profile] = field(default_factory=lambda: BUILT_IN_PROFILES)

    async def read(self, command: str, report: Report = report_nothing) -> Manifests:
        """Read the objects from files or the cluster. ``report`` takes the progress. Raises
        InvalidObject, CannotRead.
        """
        if self.files:
            return read_files(self.files, command)
        async with open_live(self.cluster) as api:
            return await read_cluster(api, command, report)
