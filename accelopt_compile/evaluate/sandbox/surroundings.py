"""What a child process gets to see of the user's environment, and where compiled baselines are kept."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from accelopt_compile import temporary

PASSED_ON = (
    "PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "CXX", "SSL_CERT_FILE", "SOURCE_DATE_EPOCH",
    "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_SPINCOUNT", "GOMP_CPU_AFFINITY",
    "KMP_BLOCKTIME", "KMP_AFFINITY", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA",
    "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES",
    "ACCELOPT_NATIVE_LAUNCHER", "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "THP_MEM_ALLOC_ENABLE",
)  # fmt: skip
"""Variables of the user's environment that a child may see: no keys, no tokens. Those of OpenMP and of the allocator are
among them so that a kernel and its baseline are timed as they will run: with short spinning, for one, Inductor's
two-thread code took 100 us here where the user's process takes 50. Those that lower the instruction set too: without them
kernels were built and timed with AVX-512, then launched with AVX2 at 0.86x of Inductor."""


def baselines_folder(cache_dir: str | None = None) -> str:
    """Where compiled baselines are kept: in the store of that root (None: the default one) that only we can write, never in the
    user's own Inductor cache, because what untrusted code could write to must not be loaded by the user's process. Where that
    cannot be written, a folder of this process: the store then keeps what it finds in memory, and searches go on. Each
    instruction level has its own: Inductor's cache keeps texts of loops over vectors of one width, and would build them for
    another."""
    from accelopt_cache import layout
    from accelopt_cache.layers import open_layers

    own, _ = open_layers(cache_dir)
    if own.root is not None:
        level = "".join(c for c in os.environ.get("ATEN_CPU_CAPABILITY", "") if c.isalnum())
        folder = Path(own.root) / layout.BASELINES / (level or "native")
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return str(folder)
    return _temporary_folder(os.getpid()).name


@functools.cache
def _temporary_folder(process: int) -> temporary.Folder:
    """One a process: a fork's end must not remove its parent's."""
    return temporary.Folder("baselines")


def child_environment(scratch: str, inductor_cache: str, variables: Sequence[str] = ()) -> dict[str, str]:
    """The whole environment of a child: the allow-list and a device's `variables`, scratch folders, and Inductor's cache."""
    environment = {name: os.environ[name] for name in (*PASSED_ON, *variables) if name in os.environ}
    return environment | {
        "HOME": scratch,
        "TMPDIR": scratch,
        "TORCHINDUCTOR_CACHE_DIR": inductor_cache,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ACCELOPT_CACHE_DIR": os.environ.get("ACCELOPT_CACHE_DIR", scratch),
    }
