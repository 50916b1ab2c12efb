"""Imports only point down: cli -> api, pipeline, torch_backend -> search, evaluate -> backends, cache -> records, errors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BOTTOM = ("accelopt_compile.records", "accelopt_compile.errors")
SPINE = ("accelopt_compile.pipeline", "accelopt_compile.deciding", "accelopt_compile.looking_up")
OUR_NAMES = ("accelopt_compile", "accelopt_backends", "accelopt_cache")

FORBIDDEN = {
    "accelopt_compile/cli": (),
    "accelopt_compile/search": (
        "accelopt_compile.cli",
        "accelopt_compile.api",
        *SPINE,
        "accelopt_compile.torch_backend",
    ),
    "accelopt_compile/evaluate": (
        "accelopt_compile.cli",
        "accelopt_compile.api",
        *SPINE,
        "accelopt_compile.torch_backend",
        "accelopt_compile.search",
    ),
    "accelopt_compile/exchange": (
        "accelopt_compile.cli",
        "accelopt_compile.api",
        *SPINE,
        "accelopt_compile.search",
        "accelopt_compile.torch_backend",
    ),
    "accelopt_compile/llm": (
        "accelopt_compile.cli",
        "accelopt_compile.api",
        "accelopt_compile.config",
        "accelopt_compile.evaluate",
        "accelopt_compile.events",
        *SPINE,
        "accelopt_compile.search",
        "accelopt_compile.torch_backend",
        "accelopt_backends",
        "accelopt_cache",
    ),
    "accelopt_compile": ("accelopt_compile.cli",),
}
"""Folder (longest prefix wins) to what its files may not import. The two other source roots see only the bottom."""


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module named by an import anywhere in the file, lazy ones included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def breaches(path: str, source: str) -> list[str]:
    """Imports of `source`, a file at `path` (relative to the root), that point up."""
    names = [name for name in imported(ast.parse(source)) if is_in(name, OUR_NAMES)]
    if path == "accelopt_compile/errors.py" or path.startswith("accelopt_compile/records/"):
        return [name for name in names if not is_in(name, BOTTOM)]
    for root in ("backends/accelopt_backends", "cache/accelopt_cache"):
        if path.startswith(root + "/"):
            own = root.split("/")[1]
            return [name for name in names if name != "accelopt_compile" and not is_in(name, (own, *BOTTOM))]
    room = max((folder for folder in FORBIDDEN if path.startswith(folder + "/")), key=len)
    return [name for name in names if is_in(name, FORBIDDEN[room])]


def test_imports_point_down() -> None:
    """No file of the three packages imports a layer above its own."""
    files = [p for package in ("accelopt_compile", "backends", "cache") for p in sorted((ROOT / package).rglob("*.py"))]
    found = {str(p.relative_to(ROOT)): b for p in files if (b := breaches(str(p.relative_to(ROOT)), p.read_text()))}
    assert {} == found


def test_planted_violations_are_caught() -> None:
    """An upward import is found in each room, also when it is inside a function."""
    assert ["accelopt_compile.api"] == breaches("accelopt_compile/search/loop.py", "def f():\n    import accelopt_compile.api\n")
    assert [] != breaches("cache/accelopt_cache/store.py", "from accelopt_compile.config import Settings\n")
    assert [] != breaches("backends/accelopt_backends/cpp/build.py", "import accelopt_cache\n")
    assert [] != breaches("accelopt_compile/records/workload.py", "from accelopt_compile import config\n")
    assert [] != breaches("accelopt_compile/pipeline.py", "from accelopt_compile.cli import main\n")
    assert [] == breaches("accelopt_compile/cli/doctor.py", "from accelopt_compile.api import prewarm\n")


def test_only_the_cli_prints() -> None:
    """`print` is called nowhere in the library but in the command line and in the sandbox child, whose pipe is its contract."""
    allowed = ("accelopt_compile/cli/", "accelopt_compile/evaluate/sandbox/")
    printing = []
    for package in ("accelopt_compile", "backends", "cache"):
        for path in sorted((ROOT / package).rglob("*.py")):
            calls = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name))
            if not str(path.relative_to(ROOT)).startswith(allowed) and any(
                c.func.id == "print" for c in calls if isinstance(c.func, ast.Name)
            ):
                printing.append(str(path.relative_to(ROOT)))
    assert [] == printing


def test_no_room_but_a_backends_own_knows_its_language() -> None:
    """The name of a device's language stands in its folder alone: whoever adds another one changes nothing else."""
    own = {p.parent.name for p in (ROOT / "backends/accelopt_backends").glob("*/__init__.py")} - {"cpp", "reference", "loops"}
    knowing = []
    for package in ("accelopt_compile", "backends", "cache"):
        for path in sorted((ROOT / package).rglob("*.py")):
            at = path.relative_to(ROOT)
            knowing += [f"{at}: {name}" for name in own if name not in at.parts and name in path.read_text().lower()]
    assert [] == knowing
