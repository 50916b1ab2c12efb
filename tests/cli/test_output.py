"""Where the output goes nowhere: a full disk, a closed stream, a reader that has enough."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ACCELOPT = f"{sys.executable} -m accelopt_compile.cli"


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("{} cache ls --json > /dev/full", 1, "accelopt: error: No space left on device\n"),
        ("{} cache ls > /dev/full", 1, "accelopt: error: No space left on device\n"),
        ("{} cache ls >&-", 0, ""),
        ("{} cache ls 2>&-", 0, ""),
        ("(sleep 3; {} cache stats; echo $? >&2) | head -0", 0, "0\n"),
    ],
    ids=["full", "full, for people", "closed", "errors closed", "nobody reads"],
)
def test_output_that_cannot_be_written_is_one_line(line: str, code: int, said: str, tmp_path: Path) -> None:
    """Never a traceback, nor a complaint of the interpreter at its end."""
    environment = {"PATH": "/usr/bin:/bin", "ACCELOPT_CACHE_DIR": str(tmp_path / "store")}
    done = subprocess.run(
        ["sh", "-c", line.format(ACCELOPT)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (code, said) == (done.returncode, done.stderr)
