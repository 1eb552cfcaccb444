"""Commands that read files: ``vreplica config check`` and ``vreplica plan``, from the bytes of the
file to what is printed.
"""

import contextlib
import io
import json
import tempfile
import time
import zlib
from pathlib import Path
from typing import Final

import orjson
import yaml

from extender.cli.lint.files import check_files
from extender.cli.lint.report import document_of_report, text_of_report
from extender.cli.query.files import read_files
from extender.cli.query.plan import choose_profiles, run_plan
from extender.cli.query.where import Where
from extender.cli.terminal.output import Format
from extender.engine.policy.profiles import BUILT_IN_PROFILES
from extender.model.errors import InvalidObject
from extender.whatif.explanation import explain_vpod
from extender.whatif.pod_explanation import explain_pod
from extender.whatif.snapshot import Snapshot
from extender.whatif.trial import OutOfTime
from extender.whatif.whatif import Change, what_if
from tests.fuzz.document_targets import CONFIG, MANIFESTS, PROFILE, cached_entry_points
from tests.fuzz.findings import general, outcome_of
from tests.fuzz.target import Target, any_json

MEMORY_FOLDER: Final = next((str(path) for path in (Path("/dev/shm"),) if path.is_dir()), None)
"""Where files never reach a disk; None: wherever temporary files go."""

YAML_WORDS: Final = (
    '"\\ud800"',
    "1: x",
    "true: x",
    "? 1",
    "0x" + "f" * 5000,
    "&a",
    "*a",
    "!!int",
    "null: ",
)
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
    """``vreplica config check FILE``: YAML, with all that YAML can do. Its parser is Python's own,
    so fewer inputs.

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
        texts.append((MANIFESTS / "base" / "webhook-configurations.yaml").read_text())
        self.seeds = [text.encode() for text in texts]
        bomb = "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n"
        self.words = (
            *YAML_WORDS,
            "&a",
            "*a",
            "<<: *a",
            "!!python/object:os.system",
            "!!binary",
            "!!set",
            "? ",
            "- ",
            "---",
            "...",
            "2026-13-01",
            "0o7",
            "1_000",
            "0x10",
            "1:30",
            ".inf",
            ".nan",
            "yes",
            "off",
            "~",
            "|",
            ">-",
            "%YAML 1.1",
            "# x",
            "\t",
            bomb,
        )
        self.seeds.append((config + bomb).encode())

    async def close(self) -> None:
        """See Target."""
        self._entry_points.stop()
        await super().close()

    async def run(self, data: bytes) -> str:
        """See Target."""
        self.path.write_bytes(data)
        report = check_files([str(self.path)])
        for printed in (text_of_report(report), json.dumps(document_of_report(report))):
            printed.encode()
        if report.findings:
            one = report.findings[0]
            # As an InvalidObject is told: its field and what is wrong with it.
            return outcome_of(InvalidObject("", f"{one.code.code} {one.field}", one.message))
        return f"read {[kind for _, kind, _ in report.summaries]}"


class PlanTarget(FileTarget):
    """``vreplica plan -f FILE``: manifests in, decisions out, as JSON or as tables."""

    name = "plan"
    inputs_share = 0.25

    async def open(self) -> None:
        """See Target."""
        await super().open()
        documents = list(
            yaml.safe_load_all((MANIFESTS / "examples" / "plan" / "pods.yaml").read_text())
        )
        for name in ("pool.yaml", "vpods.yaml"):
            documents += yaml.safe_load_all((MANIFESTS / "examples" / name).read_text())
        listed = {"apiVersion": "v1", "kind": "List", "items": documents}
        self.seeds = [
            orjson.dumps(listed),
            orjson.dumps(_plan_list()),
            yaml.safe_dump(_plan_list()).encode(),
        ]
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
        output: Format = "table" if zlib.crc32(data) % 16 == 0 else "json"
        shown = _strict_output()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(io.StringIO()):
            try:
                await run_plan(
                    Where(files=(str(self.path),)),
                    profile="",
                    output=output,
                    autoscale=True,
                    compact=True,
                )
            except InvalidObject as error:
                return outcome_of(error, known=str(self.path))
        if output == "table":
            return "planned, as tables"
        shown.seek(0)
        result = any_json(bytes(shown.buffer.read()))
        assert isinstance(result, dict)
        reasons = sorted(
            {reason.partition(" ")[0] for row in result["vpods"] for reason in row["reasons"]}
        )[:3]
        return (
            f"planned {min(len(result['vpods']), 2)} {min(len(result['pools']), 2)} "
            f"{general(str(reasons))}"
        )


class ExplainTarget(PlanTarget):
    """``vreplica explain`` of the first vpods and the first pod of what a file has, and a what-if
    of everything at once.
    """

    name = "explain"
    inputs_share = 0.1
    slow_s = 2.0

    async def run(self, data: bytes) -> str:
        """See Target."""
        self.path.write_bytes(data)
        until = time.monotonic() + 1.0

        def expired() -> bool:
            return time.monotonic() > until

        try:
            with contextlib.redirect_stderr(io.StringIO()):
                manifests = read_files([str(self.path)], "explain")
            choose_profiles(manifests, "", BUILT_IN_PROFILES)
            state = manifests.state()
        except InvalidObject as error:
            return outcome_of(error, known=str(self.path))
        before, said = state.digest(), []
        for key in sorted(key for pool in state.pools.values() for key in pool.vpods)[:2]:
            answer = explain_vpod(state, key, expired=expired)
            said.append(f"{answer['reason']!s} {[fix['field'] for fix in answer['fixes']]}")  # type: ignore[attr-defined]
            orjson.dumps(answer)
        for name in [
            pod.key
            for pool in state.pools.values()
            for known in pool.pods.values()
            if (pod := known.pod)
        ][:1]:
            orjson.dumps(explain_pod(state, name))
        assert state.digest() == before, "explaining has changed the state"
        change = Change(settings={"slotsPerPod": 7}, profile="ha", autoscale=True, compact=True)
        try:
            summary = what_if(Snapshot.of(state, list(state.pools)), change, expired=expired)[
                "summary"
            ]
        except OutOfTime:
            summary = {}
        assert isinstance(summary, dict)
        assert summary.get("overcommittedAfter", 0) >= 0
        return general(f"explained {said} {bool(summary.get('moved'))}")[:120]


def _plan_list() -> object:
    metadata = {"namespace": "eventing", "name": "d"}
    ours = "vreplica.dev/v1alpha1"
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": "eventing",
                "name": f"d-{i}",
                "labels": {"vreplica.dev/pool": "d"},
                "annotations": {"vreplica.dev/placements": '{"t/a":1}'},
            },
            "spec": {"nodeName": f"n{i}"},
            "status": {"phase": "Running"},
        }
        for i in range(2)
    ]
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
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": metadata,
                "spec": {"replicas": 3, "ordinals": {"start": 0}},
            },
            {
                "apiVersion": ours,
                "kind": "AdapterPool",
                "metadata": metadata,
                "spec": {"statefulSet": "d", "slotsPerPod": 5, "profile": "ha"},
            },
            {
                "apiVersion": ours,
                "kind": "VPod",
                "metadata": {"namespace": "t", "name": "a"},
                "spec": {"poolRef": metadata, "vreplicas": 7, "slotsPerVReplica": 2},
                "status": {"placements": [{"podName": "d-0", "vreplicas": 1}]},
            },
            *pods,
            *nodes,
        ],
    }


def _strict_output() -> io.TextIOWrapper:
    """Standard output as it is on most machines: UTF-8, and an error for what that cannot write."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
