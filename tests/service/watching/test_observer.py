"""A cluster that a command watches, and what is wrong with it told at once."""

import asyncio
import random
from pathlib import Path

import pytest

from extender.cli.recordings.recorder import ClusterSource, Recorder
from extender.cli.recordings.recording_file import RecordingFile, read_lines
from extender.kube.api import Forbidden, NotFound, OutcomeUnknown
from extender.lab.apiserver.cluster import Cluster
from extender.service.watching.observer import NotReadable, watched
from extender.whatif.recording.entries import Entry, Header, Put
from tests.support.service import a_world, until, wall


async def test_a_cluster_is_recorded_without_our_service(tmp_path: Path):
    world = await a_world(0, 1)
    path = tmp_path / "r.jsonl"
    async with watched(world.cluster) as caches:
        recorder = Recorder(ClusterSource(caches, now=lambda: 5.0), RecordingFile(path))
        recording = asyncio.create_task(recorder.run())
        await until(lambda: recorder.position is not None)
        await world.vpod("a", 2, {0: 2})
        await until(lambda: bool(caches.vpods.list()) and recorder.position is not None)
        await until(lambda: "VPod" in path.read_text())
        recording.cancel()
        await asyncio.wait({recording})
    lines = [line for _, line in read_lines(path)]
    assert isinstance(lines[0], Header)
    assert lines[0].source == "cluster"
    kinds = [
        type(line.content.obj).__name__
        for line in lines
        if isinstance(line, Entry) and isinstance(line.content, Put)
    ]
    assert kinds.count("AdapterPod") == 2
    assert kinds[-1] == "VPod"


async def test_progress_tells_how_many_objects_are_there():
    world = await a_world(0, 1, 2)
    seen: list[int] = []
    async with watched(world.cluster, progress=seen.append):
        pass
    assert seen[-1] >= 3


async def test_a_cluster_without_our_kinds_says_what_to_install():
    with pytest.raises(
        NotReadable, match=r"does not serve adapterpools.*Our kinds are not installed"
    ):
        async with watched(Cluster(now=wall, rng=random.Random(1))):
            pass


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param(
            Forbidden(403, "Forbidden", "no"),
            "nodes may not be listed: no. This user",
            id="no right",
        ),
        pytest.param(
            OutcomeUnknown(0, "Timeout", "no route"),
            "did not answer for nodes: no route",
            id="no answer",
        ),
        pytest.param(
            NotFound(404, "NotFound", "what"),
            "the cluster does not serve nodes",
            id="another server",
        ),
    ],
)
async def test_what_is_wrong_is_told_at_once(error: Exception, message: str):
    class Broken(Cluster):
        async def list_page(self, *_, **__):
            raise error

    with pytest.raises(NotReadable, match=message):
        async with watched(Broken(now=wall, rng=random.Random(1))):
            pass
