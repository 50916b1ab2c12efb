"""How much memory judging may take."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from accelopt_compile.evaluate.limits import free_memory, memory_limit

GIB = 1 << 30


def machine(root: Path, *, available: int | None, membership: str, groups: dict[str, tuple[str, str, int]]) -> tuple[Path, Path]:
    """Files as Linux has them: bytes available, and (limit, use, inactive) by the folder of a group."""
    proc, cgroup = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    if available is not None:
        (proc / "meminfo").write_text(f"MemTotal:  99 kB\nMemAvailable:   {available // 1024} kB\n")
    (proc / "self" / "cgroup").write_text(membership)
    for name, (limit, use, inactive) in groups.items():
        group = cgroup / name
        group.mkdir(parents=True, exist_ok=True)
        first = name.startswith("memory")
        (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(limit)
        (group / ("memory.usage_in_bytes" if first else "memory.current")).write_text(use)
        start = "total_" if first else ""
        shares = {"inactive": inactive // 2, "active": inactive - inactive // 2}
        (group / "memory.stat").write_text("".join(f"{start}{age}_file {share}\n" for age, share in shares.items()))
    return proc, cgroup


@pytest.mark.parametrize(
    ("membership", "groups", "expected"),
    [
        ("0::/\n", {}, 8 * GIB),
        ("0::/pod/box\n", {"pod/box": ("max", str(GIB), 0), "pod": (str(4 * GIB), str(3 * GIB), GIB)}, 2 * GIB),
        ("4:memory:/box\n1:cpu:/\n", {"memory/box": (str(2 * GIB), str(GIB), 0)}, GIB),
        ("4:memory:/elsewhere\n", {"memory": (str(2 * GIB), str(GIB), 0)}, GIB),  # in a container that sees only its own
        ("4:memory,hugetlb:/box\n", {"memory/box": (str(2 * GIB), str(GIB), 0)}, GIB),
        ("nonsense\n", {}, 8 * GIB),
    ],
)
def test_the_least_of_machine_and_groups_is_free(
    membership: str, groups: dict[str, tuple[str, str, int]], expected: int, tmp_path: Path
) -> None:
    """What a group's page cache holds counts as free, as the machine's does."""
    assert expected == free_memory(*machine(tmp_path, available=8 * GIB, membership=membership, groups=groups))


def test_where_nobody_says_there_is_no_limit(tmp_path: Path) -> None:
    assert math.inf == free_memory(*machine(tmp_path, available=None, membership="", groups={}))


def test_a_child_may_take_no_more_than_its_group_bears(tmp_path: Path) -> None:
    """Where a group runs out of memory, a system may end all that is in it: the user's program too."""
    groups = {"pod/box": ("max", str(GIB), 0), "pod": (str(4 * GIB), str(GIB), 0)}
    assert 3 * GIB == memory_limit(*machine(tmp_path, available=None, membership="0::/pod/box\n", groups=groups))


def test_without_a_group_the_machine_decides(tmp_path: Path) -> None:
    assert 8 * GIB <= memory_limit(*machine(tmp_path, available=None, membership="", groups={}))
