"""The launcher alone: arguments, threads, fork, and the ctypes stand-in."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import handmade
import pytest
import torch

from accelopt_compile.launch import native

THREADS = handmade.entry("((float*)t[1])[0] = (float)threads; return 0;")
SUM = handmade.entry("((float*)t[2])[0] = ((const float*)t[0])[0] + ((const float*)t[1])[0] * s[0]; return 0;")


def make(
    kind: str, text: str, tmp_path: Path, inputs: int, symbols: int, fallback: Any = None, most: tuple[int, ...] = ()
) -> native.Launched:
    address, library = native.c_function(str(handmade.built(text, tmp_path)))
    fallback = fallback or (lambda *args: args[-1].fill_(-1))
    if kind == "python":
        return native.PythonLauncher(native.plain(address), inputs, symbols, 1, fallback, most)
    module = native.native_module(tmp_path)
    assert module is not None
    made: native.Launched = module.Kernel(address, inputs, symbols, 1, kind == "gil released", fallback, library, most)
    return made


KINDS = pytest.mark.parametrize("kind", ["native", "gil released", "python"])


@KINDS
def test_passes_tensors_and_sizes(kind: str, tmp_path: Path) -> None:
    """Inputs, then sizes, then the output, which may be the last positional or `out=`."""
    kernel = make(kind, SUM, tmp_path, inputs=2, symbols=1)
    for out_as in ("positional", "keyword"):
        out = torch.zeros(1)
        a, b = torch.tensor([1.0]), torch.nn.Parameter(torch.tensor([2.0]))
        _ = kernel(a, b, 10, out) if out_as == "positional" else kernel(a, b, 10, out=out)
        assert 21.0 == out.item()
    assert (2, 0) == (kernel.calls, kernel.fallbacks)


@KINDS
def test_no_size_beyond_what_was_proven_reaches_a_kernel(kind: str, tmp_path: Path) -> None:
    """The reference does it, in one call and among many."""
    kernel = make(kind, SUM, tmp_path, inputs=2, symbols=1, most=(10,))
    one, outs = torch.ones(1), [torch.zeros(1) for _ in range(4)]
    kernel(one, one, 10, outs[0])
    kernel(one, one, 11, outs[1])
    kernel.many((one, one, outs[2], one, one, outs[3]), (11, 10), 0)
    assert [11.0, -1.0, -1.0, 11.0] == [out.item() for out in outs]
    assert (4, 2) == (kernel.calls, kernel.fallbacks)


@KINDS
def test_wrong_arguments_are_an_error(kind: str, tmp_path: Path) -> None:
    """A missing tensor, a strange keyword or a size that is no integer is a TypeError, not a crash."""
    kernel = make(kind, SUM, tmp_path, inputs=2, symbols=1)
    one = torch.ones(1)
    with pytest.raises(TypeError):
        kernel(one, one, out=one)
    with pytest.raises(TypeError):
        kernel(one, one, 1, into=one)
    with pytest.raises((TypeError, ValueError)):
        kernel(one, one, "3", out=one)


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no Linux with transparent huge pages")
@pytest.mark.parametrize("kind", ["gil released", "python"])
def test_a_large_output_asks_for_huge_pages(kind: str, tmp_path: Path) -> None:
    """The mapping that a 64 MB output lies in is advised, that of an input is not."""
    kernel = make(kind, THREADS, tmp_path, inputs=1, symbols=0)
    given, out = torch.empty(1 << 24), torch.empty(1 << 24)
    kernel(given, out)
    assert [False, True] == ["hg" in flags_of_mapping(t.data_ptr() + t.nbytes // 2) for t in (given, out)]


def flags_of_mapping(address: int) -> list[str]:
    """What Linux says of the mapping that holds the address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            low, high = (int(part, 16) for part in first.split("-"))
            inside = low <= address < high
        elif inside and first == "VmFlags:":
            return line.split()[1:]
    raise AssertionError(f"nothing is mapped at {address:x}")


@KINDS
def test_follows_torch_threads(kind: str, tmp_path: Path) -> None:
    """torch.set_num_threads is what the kernel sees, in this thread and in a new one."""
    kernel = make(kind, THREADS, tmp_path, inputs=1, symbols=0)
    before = torch.get_num_threads()
    seen: list[float] = []

    def look() -> None:
        out = torch.zeros(1)
        kernel(out, out=out)
        seen.append(out.item())

    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            look()
            worker = threading.Thread(target=look)
            worker.start()
            worker.join()
    finally:
        torch.set_num_threads(before)
    assert [1.0, 1.0, 3.0, 3.0] == seen


@KINDS
@pytest.mark.parametrize(("setting", "expected"), [("OMP_THREAD_LIMIT=2", 2), ("OMP_DYNAMIC=true", 1)])
def test_no_more_threads_than_openmp_gives(kind: str, setting: str, expected: int, tmp_path: Path) -> None:
    """A kernel that shares its work out by the number it is told would leave some of it undone."""
    program = """
import sys; sys.path[:0] = {path!r}
import torch; from pathlib import Path; from test_native import THREADS, make
torch.set_num_threads(4)
kernel, out = make({kind!r}, THREADS, Path({place!r}), inputs=1, symbols=0), torch.zeros(1)
for _ in range(2):
    kernel(out, out=out); print(int(out.item()))
"""
    text = program.format(path=[str(Path(__file__).parent), *sys.path], kind=kind, place=str(tmp_path))
    environment = {**os.environ, **dict([setting.split("=")])}
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True)
    assert [expected, expected] == [int(line) for line in done.stdout.split()]


BUSY = handmade.entry("((float*)t[1])[0] += 1; for (volatile long k = 0; k < 100000000; k++); return 0;")


@KINDS
def test_what_a_signal_handler_raises_during_a_call_reaches_the_caller(kind: str, tmp_path: Path) -> None:
    """And the reference does not do once more what the kernel has done: it may have written over its inputs."""

    def late(*_: object) -> None:
        raise TimeoutError("late")

    kernel, out = make(kind, BUSY, tmp_path, inputs=1, symbols=0), torch.zeros(1)
    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(TimeoutError, match="late"):
            kernel(out, out=out)
            time.sleep(1)  # the C launcher's handlers run when Python goes on
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (1.0, 0) == (out.item(), kernel.fallbacks)


@pytest.mark.parametrize("in_place", [False, True])
def test_what_a_python_kernel_raises_is_the_caller_s_where_it_may_have_written(in_place: bool) -> None:
    """Else the reference answers."""

    def half_done(*_: object) -> int:
        raise RuntimeError("between two launches")

    kernel = native.GuardedLauncher(
        half_done, in_place=in_place, inputs=1, symbols=0, outputs=1, fallback=lambda *args: args[-1].fill_(-1)
    )
    out = torch.zeros(1)
    with pytest.raises(RuntimeError, match="between two") if in_place else contextlib.nullcontext():
        kernel(out, out)
    assert (0.0 if in_place else -1.0, int(not in_place)) == (out.item(), kernel.fallbacks)


def halved(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def a_folder(file: Path) -> None:
    file.unlink()
    (file / "inside").mkdir(parents=True)


def a_link_to_itself(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


@pytest.mark.parametrize("damage", [halved, a_folder, a_link_to_itself])
def test_a_damaged_launcher_is_made_anew(damage: Callable[[Path], None], tmp_path: Path) -> None:
    """Loading half of a library ends the process."""
    damage(native._built(tmp_path))
    again = native._built(tmp_path)
    assert again == native._built(tmp_path)
    assert native._load(again).Kernel


@KINDS
def test_forked_child_uses_one_thread(kind: str, tmp_path: Path) -> None:
    """An OpenMP pool does not survive fork, so a kernel in a forked child gets one thread."""
    kernel = make(kind, THREADS, tmp_path, inputs=1, symbols=0)
    out = torch.zeros(1)
    kernel(out, out=out)
    child = os.fork()
    if child == 0:
        kernel(out, out=out)
        os._exit(int(out.item()))
    assert 1 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Named(torch.Tensor):
    """As torchvision's images are."""


class NamedParameter(torch.nn.Parameter):
    """As some libraries' weights are."""


class Dispatching(torch.Tensor):
    """One that says for itself what operators do."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("kind", "fallbacks"), [(Named, 0), (NamedParameter, 0), (Dispatching, 1)])
def test_subclasses_that_hold_elements_are_tensors(kind: type[torch.Tensor], fallbacks: int, tmp_path: Path) -> None:
    """The C launcher reads no pointer of one with a dispatch of its own, which may hold none: the fallback answers."""
    kernel = make("native", THREADS, tmp_path, inputs=1, symbols=0)
    out = torch.zeros(1)
    kernel(torch.ones(1).as_subclass(kind), out=out)
    assert (-1.0 if fallbacks else torch.get_num_threads(), fallbacks) == (out.item(), kernel.fallbacks)


def test_exception_in_the_fallback_is_raised(tmp_path: Path) -> None:
    """What the fallback raises reaches the caller."""

    def broken(*args: Any) -> None:
        raise RuntimeError("reference failed")

    kernel = make("native", handmade.entry("return 1;"), tmp_path, inputs=1, symbols=0, fallback=broken)
    with pytest.raises(RuntimeError, match="reference failed"):
        kernel(torch.ones(1), out=torch.ones(1))


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the launcher cannot be compiled, the ctypes one is used."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native.native_module(tmp_path / "elsewhere") is None


def test_missing_symbol_is_an_oserror(tmp_path: Path) -> None:
    """A library without the entry point is a load failure that names the file."""
    library = handmade.built('extern "C" int other() { return 0; }', tmp_path)
    with pytest.raises(OSError, match=library.name):
        native.c_function(str(library))
