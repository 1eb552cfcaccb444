"""Commands that read files: ``vreplica config check`` and ``vreplica plan``, from the bytes of the file to what is printed."""

import contextlib
import io
import tempfile
import zlib
from pathlib import Path
from typing import Final

import orjson
import yaml

from extender.config_cli import run_check
from extender.core.errors import InvalidObject
from extender.plan_cli import run_plan
from tests.fuzz.document_targets import CONFIG, MANIFESTS, PROFILE, cached_entry_points
from tests.fuzz.findings import general, outcome_of
from tests.fuzz.target import Target, any_json

MEMORY_FOLDER: Final = next((str(path) for path in (Path("/dev/shm"),) if path.is_dir()), None)
"""Where files never reach a disk; None: wherever temporary files go."""

YAML_WORDS: Final = ('"\\ud800"', "1: x", "true: x", "? 1", "0x" + "f" * 5000, "&a", "*a", "!!int", "null: ")
"""What YAML can say and JSON cannot."""


class FileTarget(Target):
    """A target that reads a file."""

    _folder: "tempfile.TemporaryDirectory[str]"

    async def open(self) -> None:
        """See Target."""
        self._folder = tempfile.TemporaryDirectory(dir=MEMORY_FOLDER)
        self.path = Path(self._folder.name) / "input.yaml"

    async def close(self) -> None:
        """See Target."""
        self._folder.cleanup()


class ConfigFileTarget(FileTarget):
    """``vreplica config check FILE``: YAML, with all that YAML can do. Its parser is Python's own, so fewer inputs.

    That parser's time grows with the square of the nesting, until Python's own limit ends it.
    """

    name = "config-file"
    slow_s = 2.0
    structural = 0.4
    inputs_share = 0.1

    async def open(self) -> None:
        """See Target."""
        await super().open()
        self._entry_points = cached_entry_points()
        self._entry_points.start()
        config = yaml.safe_dump({**CONFIG, "profiles": [PROFILE]})
        folder = MANIFESTS / "kube-scheduler"
        texts = [config, *((folder / name).read_text() for name in ("config.yaml", "policy.json"))]
        self.seeds = [text.encode() for text in texts]
        bomb = "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n"
        self.words = (*YAML_WORDS, "&a", "*a", "<<: *a", "!!python/object:os.system", "!!binary", "!!set", "? ", "- ", "---", "...", "2026-13-01", "0o7",
                      "1_000", "0x10", "1:30", ".inf", ".nan", "yes", "off", "~", "|", ">-", "%YAML 1.1", "# x", "\t", bomb)  # fmt: skip
        self.seeds.append((config + bomb).encode())

    async def close(self) -> None:
        """See Target."""
        self._entry_points.stop()
        await super().close()

    async def run(self, data: bytes) -> str:
        """See Target."""
        self.path.write_bytes(data)
        with contextlib.redirect_stdout(_strict_output()):
            try:
                run_check([str(self.path)])
            except InvalidObject as error:
                return outcome_of(error, known=str(self.path))
        return "read"


class PlanTarget(FileTarget):
    """``vreplica plan -f FILE``: manifests in, decisions out, as JSON or as tables."""

    name = "plan"
    inputs_share = 0.25

    async def open(self) -> None:
        """See Target."""
        await super().open()
        documents = list(yaml.safe_load_all((MANIFESTS / "examples" / "plan" / "pods.yaml").read_text()))
        for name in ("pool.yaml", "vpods.yaml"):
            documents += yaml.safe_load_all((MANIFESTS / "examples" / name).read_text())
        listed = {"apiVersion": "v1", "kind": "List", "items": documents}
        self.seeds = [orjson.dumps(listed), orjson.dumps(_plan_list()), yaml.safe_dump(_plan_list()).encode()]
        self.words = (
            *YAML_WORDS,
            "ha",
            "pack",
            "spread",
            "knative",
            "slotsPerVReplica",
            "minPodsPerVPod",
            "vreplica.dev/placements",
            "100000",
            "100001",
        )

    async def run(self, data: bytes) -> str:
        """See Target."""
        self.path.write_bytes(data)
        output = "table" if zlib.crc32(data) % 16 == 0 else "json"
        shown = _strict_output()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(io.StringIO()):
            try:
                run_plan([str(self.path)], output=output, autoscale=True, compact=True)
            except InvalidObject as error:
                return outcome_of(error, known=str(self.path))
        if output == "table":
            return "planned, as tables"
        shown.seek(0)
        result = any_json(bytes(shown.buffer.read()))
        assert isinstance(result, dict)
        reasons = sorted({reason.partition(" ")[0] for row in result["vpods"] for reason in row["reasons"]})[
            :3
        ]
        return (
            f"planned {min(len(result['vpods']), 2)} {min(len(result['pools']), 2)} {general(str(reasons))}"
        )


def _plan_list() -> object:
    metadata = {"namespace": "eventing", "name": "d"}
    ours = "vreplica.dev/v1alpha1"
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "eventing", "name": f"d-{i}", "labels": {"vreplica.dev/pool": "d"},
         "annotations": {"vreplica.dev/placements": '{"t/a":1}'}}, "spec": {"nodeName": f"n{i}"}, "status": {"phase": "Running"}}
        for i in range(2)
    ]  # fmt: skip
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{i}", "labels": {"topology.kubernetes.io/zone": f"z{i}"}},
        }
        for i in range(2)
    ]
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": {"replicas": 3, "ordinals": {"start": 0}}},
            {"apiVersion": ours, "kind": "AdapterPool", "metadata": metadata, "spec": {"statefulSet": "d", "slotsPerPod": 5, "profile": "ha"}},
            {"apiVersion": ours, "kind": "VPod", "metadata": {"namespace": "t", "name": "a"},
             "spec": {"poolRef": metadata, "vreplicas": 7, "slotsPerVReplica": 2},
             "status": {"placements": [{"podName": "d-0", "vreplicas": 1}]}},
            *pods,
            *nodes,
        ],
    }  # fmt: skip


def _strict_output() -> io.TextIOWrapper:
    """Standard output as it is on most machines: UTF-8, and an error for what that cannot write."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
