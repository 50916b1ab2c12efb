"""Reads the kernels of these folders: a file is one kernel, and its header says what is expected of it.

attack     what it does, and its number in the catalogue of cheats; honest kernels say `honest` and how they compute
workload   a name of workloads.py
stage      where it must fall; `reason` is what the verdict's reason or diagnosis must contain
wall       "text" or "object", where a wall catches it and not verification
object     what the object screen alone says of it, for one that the text gives away already
open       why it passes today: a hole. Its test must fail until the hole is closed, and then this line goes
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from accelopt_compile.records import KernelSource, Stage

from .workloads import NAMES

FOLDER = Path(__file__).parent
KEYS = {"attack", "honest", "workload", "stage", "reason", "wall", "object", "open"}
_LINE = re.compile(r"(?://|#) ([a-z]+): (\S.*)")


@dataclass(frozen=True)
class Sample:
    """One file. `header` holds its lines by key."""

    name: str
    text: str
    header: dict[str, str]

    @property
    def workload(self) -> str:
        return self.header["workload"]

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Where it may fall: several where the canaries of the day decide."""
        return tuple(Stage[name] for name in self.header["stage"].split())

    @property
    def source(self) -> KernelSource:
        return KernelSource(language="cpp", text=self.text, origin="human")


def header(text: str) -> dict[str, str]:
    """The lines `key: value` at the top of a file."""
    found = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            break
        found[match[1]] = match[2]
    return found


def samples(folder: str, pattern: str = "*.cpp") -> list[Sample]:
    """Every file of a folder, grouped by workload: kernels of one workload share an evaluator."""
    found = [Sample(f.stem, text, header(text)) for f in (FOLDER / folder).glob(pattern) if (text := f.read_text())]
    return sorted(found, key=lambda s: (NAMES.index(s.header.get("workload", NAMES[0])), s.name))
