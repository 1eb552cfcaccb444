"""docs/ui.md says what is there: sections and fields of the stream, limits, and pictures that are
small.
"""

import asyncio
import re
from pathlib import Path

import pytest

from extender.engine.pods.pod_loads import pod_loads
from extender.model.assignment import Assignment, encode_assignment
from extender.model.objects import LoadTarget
from extender.model.tenancy import Tenancy
from extender.service.http.page import facts, stream
from extender.whatif.tenants import TENANTS_LISTED_MAX
from tests.support.builders import POOL, Scene
from tests.ui.scene import a_page

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "ui.md").read_text()
IMAGE_BYTES_MAX = 200_000


def told() -> facts.News:
    """With all that a pool's leader knows: load, dimensions, hand-over and tenants, too."""
    balanced = LoadTarget(metric="requests", target=1.2)
    shared = Tenancy(tenant_label="team")
    scene = Scene(capacities=(("cpu", 4000),), load=balanced, tenancy=shared)
    told = encode_assignment(Assignment(1, "n/p", "uid-0", {}))
    scene.pod(0, {"tenant/a": 1}, assignment_text=told).vpod("a", 1, {0: 1})
    scene.pool.load = pod_loads({0: 10.0}, {0: 1})
    page = a_page(scene.state)

    async def look() -> facts.News:
        await page.history.sample()
        return await page._facts(POOL).look()

    return asyncio.run(look())


@pytest.mark.parametrize(
    "section", ["service", "pools", "pods", "vpods", "nodes", "tenancy", "tenants"]
)
def test_the_fields_of_a_section_are_those_of_its_records(section: str):
    (row,) = re.findall(rf"^\| `{section}` \|[^|]*\| (.*) \|$", TEXT, re.MULTILINE)
    (record,) = told()[section].values()
    assert isinstance(record, dict)
    named = set(re.findall(r"`(\w+)`", row))
    assert named <= record.keys()
    if section != "pools":  # the counts of its status are described with the status
        assert named == record.keys()


def test_every_section_is_described():
    described = re.findall(
        r"^\| `(\w+)` \| (?!\w+ the)", TEXT.partition("| section |")[2], re.MULTILINE
    )
    assert set(described) == set(told())


def test_the_limits_are_those_of_the_code():
    for limit in (
        f"The {TENANTS_LISTED_MAX} that wait for most are listed",
        f"the {TENANTS_LISTED_MAX} that wait for most |",
        f"{facts.PODS_MAX:,} pods, {facts.VPODS_MAX:,} vpods and {facts.POOLS_MAX:,} pools",
        f"{stream.STREAMS_MAX} streams a replica",
        f"leaves {stream.QUEUE_ITEMS_MAX} events unread",
        f"each {stream.KEEPALIVE_S:g} s keeps",
    ):
        assert limit in " ".join(TEXT.split())


def test_the_pictures_are_there_and_small():
    pictures = re.findall(r"!\[[^\]]+\]\((images/[\w-]+\.png)\)", TEXT)
    assert len(pictures) == 2
    for picture in pictures:
        assert (DOCS / picture).stat().st_size < IMAGE_BYTES_MAX, picture
