"""What a process behind a runner's walls may still open: run as a program, which raises them in itself and prints JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict

from accelopt_backends.base import Attached
from accelopt_compile.evaluate.limits import Limits
from accelopt_compile.evaluate.sandbox.walls import raise_walls


def opened(path: str, flags: int) -> bool:
    try:
        os.close(os.open(path, flags))
    except OSError:
        return False
    return True


def started() -> bool:
    try:
        return subprocess.run(["/bin/true"]).returncode == 0
    except OSError:
        return False


def main(device: str, fact: str, other: str, own: str, compiles: str) -> None:
    attached = Attached(driver="copies", opens=(device,), reads=(fact,), compiles=compiles == "compiles")
    order: list[str] = []
    walls = raise_walls(
        "runner",
        asdict(Limits()),
        readable=(),
        writable=(own,),
        attached=attached,
        before_files=lambda: order.append("opened" if opened(other, os.O_RDONLY) else "too late"),
    )
    found = {
        "device": opened(device, os.O_RDWR),
        "fact": opened(fact, os.O_RDONLY),
        "fact written": opened(fact, os.O_RDWR),
        "other": opened(other, os.O_RDONLY),
        "other written": opened(other, os.O_WRONLY),
        "own written": opened(f"{own}/made", os.O_WRONLY | os.O_CREAT),
        "programs": started(),
    }
    print(json.dumps({"walls": walls, "found": found, "before": order}))


if __name__ == "__main__":
    main(*sys.argv[1:])
