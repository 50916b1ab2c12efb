"""A kernel that gets no memory for its own arrays declines before it has written anything: the region then runs without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys; sys.path[:0] = {path!r}
import ctypes, resource
import torch
from tests.backends.seeds import BACKEND, regions_of

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
wide = torch.randn(2, 1 << 23)
functions = {{
    "kept rows": lambda x: x.softmax(1) + 1,
    "partial sums": lambda x: x.sum(0),
    "the best of each block": lambda x: x.topk(40)[0],
}}
for name, function in functions.items():
    ((workload, binding),) = regions_of(function, wide)
    source = BACKEND.seed(workload)
    kernel = BACKEND.load(BACKEND.build(source, source.defaults(), {folder!r}))
    outputs = [torch.empty(workload.bound_shape(s, binding)) for s in workload.output_specs]
    pointers = [wide.data_ptr(), *(o.data_ptr() for o in outputs)]
    sizes = [binding[s] for s in workload.symbols]
    for threads in (1, 2):
        assert 0 == kernel(pointers, sizes, threads), name
        for o in outputs:
            o.fill_(-7.0)
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 4096, resource.RLIM_INFINITY))
        while libc.malloc(1 << 14):  # what lies free already
            pass
        status = kernel(pointers, sizes, threads)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if name == "kept rows" and threads == 2:  # two rows, so two of them are kept, whatever the threads
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 3 * wide[0].nbytes, resource.RLIM_INFINITY))
            assert 0 == kernel(pointers, sizes, 8)
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            for o in outputs:
                o.fill_(-7.0)
        print(name, threads, status, all((o == -7.0).all().item() for o in outputs))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's limit of a process's memory")
@pytest.mark.timeout(300)
def test_without_memory_a_kernel_declines_and_writes_nothing(tmp_path: Path) -> None:
    """Rows that are kept, partial sums of the slices and a selection's bounds, on one thread and on two. Each was written to at
    address 0 before."""
    program = PROGRAM.format(path=sys.path, folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    names = ("kept rows", "partial sums", "the best of each block")
    assert "".join(f"{name} {threads} 1 True\n" for name in names for threads in (1, 2)) == done.stdout, done.stderr[-2000:]
