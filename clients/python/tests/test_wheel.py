"""What is installed: the whole library with its types, and nothing that needs more than aiohttp."""

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parents[1]
SOURCES = sorted((FOLDER / "vreplica_adapter").rglob("*.py"))


def test_the_wheel_has_all_modules_and_the_mark_of_types(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=FOLDER,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("vreplica_adapter-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as content:
        names = {name for name in content.namelist() if ".dist-info/" not in name}
        (metadata,) = [name for name in content.namelist() if name.endswith("/METADATA")]
        told = content.read(metadata).decode()
    sources = {str(path.relative_to(FOLDER)) for path in SOURCES}
    assert names == sources | {"vreplica_adapter/py.typed"}
    assert [line for line in told.splitlines() if line.startswith("Requires-")] == [
        "Requires-Python: >=3.11",
        "Requires-Dist: aiohttp>=3.11",
    ]


def test_aiohttp_is_all_that_it_imports_beside_the_standard_library():
    roots: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                roots |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                roots.add(str(node.module).partition(".")[0])
    assert roots - sys.stdlib_module_names == {"aiohttp", "vreplica_adapter"}
