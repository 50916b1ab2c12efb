"""The kernels of a process: what is built while others run."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import handmade
import torch

from accelopt_compile.launch import kernels

VECTOR = handmade.spec("s0", 8)
WORK = handmade.workload([VECTOR, VECTOR], [VECTOR], ("s0",))


class Slow:
    """A kernel whose building goes on until it is told to end."""

    def __init__(self, key: str, directory: Path) -> None:
        self.begun, self.end = threading.Event(), threading.Event()
        kernels.adopt(kernels.Adopted(key=key, workload=WORK, load=self.load, reference=_added, directory=directory))

    def load(self) -> kernels.Loaded:
        self.begun.set()
        assert self.end.wait(60)
        raise OSError("it was not built after all")


def _added(a: torch.Tensor, b: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
    return (a + 2 * b,)


def ran(key: str) -> bool:
    """Whether the kernel computes what it should, called as generated code calls it."""
    a, b, out = torch.ones(3, 8), torch.ones(3, 8), torch.zeros(3, 8)
    kernels.resolve(key)(a, b, 3, out=out)
    return bool((out == 3.0).all())


def test_while_a_kernel_is_built_others_are_found_and_launched(tmp_path: Path) -> None:
    """A build may take a minute: no graph of another thread waits for it, whether its kernel is new or known."""
    known, new = (handmade.adopt(WORK, handmade.ADD_TWICE + f"// {name}\n", _added, tmp_path / name) for name in ("known", "new"))
    for name in ("known", "new"):
        (tmp_path / name).mkdir()
    assert ran(known)
    slow = Slow("slow", tmp_path)
    builder = threading.Thread(target=kernels.ready, args=("slow",))
    builder.start()
    assert slow.begun.wait(60)
    seen: list[bool] = []
    other = threading.Thread(target=lambda: seen.extend((ran(known), "" == kernels.ready(new), ran(new))))
    other.start()
    other.join(60)
    slow.end.set()
    builder.join(60)
    assert [True, True, True] == seen


def test_a_fork_amid_a_build_does_not_wait_for_it(tmp_path: Path) -> None:
    """The thread that builds is not in the child, where nobody would ever let go of its lock."""
    slow = Slow("slow", tmp_path)
    builder = threading.Thread(target=kernels.ready, args=("slow",))
    builder.start()
    assert slow.begun.wait(60)
    child = os.fork()
    if child == 0:
        slow.end.set()
        os._exit(0 if "not built after all" in kernels.ready("slow") else 1)
    slow.end.set()
    builder.join(60)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
