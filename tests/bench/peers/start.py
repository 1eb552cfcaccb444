"""Starts what a bench measures: the service as shipped, the API server's stand-in, and the two
no-op extenders.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.population import Population
from tests.bench.stand_in import arguments_of
from tests.e2e.objects import MANIFESTS, load, write_json
from tests.e2e.processes import VENV_BIN, Probe, Process, Processes, free_port

READY_TIMEOUT_S: Final = 120.0
PYTHON: Final = VENV_BIN / "python"


@dataclass(frozen=True)
class Running:
    """A program that listens on loopback at ``host`` (address:port)."""

    process: Process
    host: str

    @property
    def url(self) -> str:
        """With http, without path."""
        return f"http://{self.host}"


@contextlib.contextmanager
def processes() -> Iterator[Processes]:
    """For the programs of a bench: all of them end with it, and their logs go. Raises what the
    bench raises, with the logs' ends.
    """
    with tempfile.TemporaryDirectory(prefix="vreplica-bench-") as directory:
        running = Processes(Path(directory) / "logs")
        try:
            yield running
        except Exception as error:
            error.add_note(running.log_tails())
            raise
        finally:
            running.stop_all(timeout_s=0.0)


def start_noop(programs: Processes, program: Path, kubeconfig: Path | None = None) -> Running:
    """The Go extender; with ``kubeconfig``, of a stand-in, it writes the Bindings."""
    port = free_port()
    arguments: list[str | Path] = [program, f"-port={port}"]
    if kubeconfig is not None:
        arguments += [f"-kubeconfig={kubeconfig}", "-json"]
    return _ready(programs.start("noop-go", arguments), port)


def start_aiohttp(programs: Processes) -> Running:
    """The aiohttp extender."""
    port = free_port()
    arguments: list[str | Path] = [
        PYTHON,
        "-m",
        "tests.bench.peers.aiohttp_noop",
        "--port",
        str(port),
    ]
    return _ready(programs.start("noop-aiohttp", arguments), port)


def start_stand_in(programs: Processes, population: Population) -> Running:
    """An API server that holds ``population``."""
    port = free_port()
    arguments: list[str | Path] = [
        PYTHON,
        "-m",
        "tests.bench.stand_in",
        "--port",
        str(port),
        *arguments_of(population),
    ]
    return _ready(programs.start("stand-in", arguments), port)


def start_service(programs: Processes, api: Running) -> Running:
    """``vreplica serve`` with its shipped configuration, ready; on a stand-in, which keeps no
    Lease, it always leads.
    """
    service = launch_service(programs, api)
    return _ready(service.process, int(service.host.rpartition(":")[2]))


def launch_service(programs: Processes, api: Running) -> Running:
    """As ``start_service``, not waited for."""
    port = free_port()
    (config,) = load(MANIFESTS / "base" / "service-config.yaml")
    config["server"]["port"] = port
    config["leaderElection"]["leaderElect"] = False
    config["clientConnection"]["kubeconfig"] = str(kubeconfig_for(programs, api))
    file = write_json(programs.log_dir.parent / f"service-{port}.json", config)
    process = programs.start("service", [VENV_BIN / "vreplica", "serve", "--config", file])
    return Running(process, f"127.0.0.1:{port}")


def kubeconfig_for(programs: Processes, api: Running) -> Path:
    """How to reach a stand-in."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": api.url}}],
        "users": [{"name": "bench", "user": {}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }
    port = api.host.rpartition(":")[2]
    return write_json(programs.log_dir.parent / f"stand-in-{port}.kubeconfig", content)


def _ready(process: Process, port: int) -> Running:
    asyncio.run(process.ready(Probe(f"http://127.0.0.1:{port}/readyz"), READY_TIMEOUT_S))
    return Running(process, f"127.0.0.1:{port}")
