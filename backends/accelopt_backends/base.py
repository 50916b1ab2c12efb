"""What a backend is: one language, one folder, this protocol. Adding one is described in backends/README.md.

Nothing here imports a toolchain. A backend never raises for a bad kernel: `screen` and `ToolchainFailed` turn it
into a verdict upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from accelopt_compile.records import Artifact, Binding, KernelSource, Workload


@dataclass(frozen=True, kw_only=True)
class Attached:
    """A device with memory of its own, as a process needs it that runs kernels there. `driver` names the class of
    `accelopt_compile.evaluate.devices` that allocates, copies and times. Behind walls `opens` are the device files and folders
    that stay open for writing, `reads` those for reading; `variables` of the user's environment say which device it is. Where
    `compiles`, a first launch runs a compiler: the process may then start what is installed, as a builder may."""

    driver: str
    opens: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    compiles: bool = False


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The backend can build and run here. `target` is e.g. "cpp-x86_64-avx512"; `environment` what a record stores
    and a load compares (compiler version, device name, ...). `rung` is what running a kernel here proves: "simulated" where
    the target's device is not here, so that kernels are right or wrong, but never fast or slow. `attached` is the device that
    kernels take addresses of; None where they take the host's."""

    target: str
    environment: Mapping[str, str]
    rung: Literal["device", "simulated"] = "device"
    attached: Attached | None = None


@dataclass(frozen=True, kw_only=True)
class Missing:
    """The backend cannot work here: why, and how to get it."""

    why: str
    how: str


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One static refusal of a source: the line it stands on (1-based), why, and what to write instead."""

    line: int
    reason: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The least time the device could need: `seconds`, and what binds it ("memory" or "compute"). `launch_s` is what starting a
    kernel costs beside that, where estimates count it."""

    seconds: float
    bound: str
    launch_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Guide:
    """A language for authors. `facts` is read before a plan, `writing` before a kernel: Markdown with front matter that
    holds its version. `fences` are the names a code block may have, the usual one first; `machine` says what this machine is,
    a line each; `counts` names the features of a built kernel that a planner is shown, in this order."""

    language: str
    fences: tuple[str, ...]
    facts: str
    writing: str
    machine: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Standalone:
    """A kernel as a Python module without anything of ours. `text` imports torch and defines a function ENTRY, called with the
    inputs, the outputs and the sizes in the workload's order; it raises where the kernel declines. `files` lie beside it, by
    name; `language` ("python") and `hardware` ("cpu") are for whoever sorts solutions, `dependencies` what it imports."""

    ENTRY: ClassVar[str] = "accelopt_kernel"

    language: str
    text: str
    hardware: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    dependencies: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Products:
    """Which matrix products the regions of a backend may hold: `most` in a region; with 0 all are left to the library.

    Without `rows`, a product of any size, where something can be fused with it. With `rows`, one whose left operand has at
    most so many rows, for certain: its time is that of reading the right operand, so it is worth a kernel by itself. What
    stands before and behind stays in regions of its own, as if the product were the library's; only what unpacks the right
    operand comes along. `widest` is the size of a result's element in bytes at most.
    """

    most: int = 0
    rows: int | None = None
    widest: int = 8


NO_PRODUCTS = Products()


Kernel = Callable[[Sequence[int], Sequence[int], int], int]
"""A loaded kernel: (data pointers: inputs then outputs, symbol values in `workload.symbols` order, threads) -> 0 when it
ran, anything else when it declined. Plain addresses, so that every backend and the sandbox share one calling rule."""


class Backend(Protocol):
    """One language. Implementations are stateless apart from caches of what the machine is."""

    name: str
    device: str
    """torch's name for the devices whose tensors its kernels take: "cpu", "cuda". Written out in the class, as is `automatic`:
    both are read without importing the backend (`registry.automatic`)."""
    automatic: bool
    """Whether the setting "auto" may choose it for a graph on its device."""
    products: Products
    thread_tunables: tuple[str, ...]
    """Tunables that share work out among threads, and so do nothing on one."""

    def probe(self) -> Ready | Missing:
        """What this machine offers. Cached; cheap after the first call."""

    def supports(self, workload: Workload) -> str | None:
        """None when a seed can be generated for the workload, else the reason why not (one line, lower case)."""

    def seed(self, workload: Workload) -> KernelSource:
        """A correct first kernel generated from the workload, at the default structure."""

    def grammar(self, workload: Workload) -> Mapping[str, tuple[str, ...]]:
        """The structural choices that make sense for this workload, default value first: the mutation grammar."""

    def render(self, workload: Workload, structure: Mapping[str, str]) -> KernelSource:
        """The kernel with these structural choices (missing ones at their default). Raises ValueError for a choice
        outside the grammar."""

    def valid(self, source: KernelSource, tunables: Mapping[str, int]) -> bool:
        """Whether this combination of tunable values may be built (the constraint)."""

    def screen(self, source: KernelSource) -> Sequence[Refusal]:
        """Static refusals, before anything is built. Empty means it may be built."""

    def build(self, source: KernelSource, tunables: Mapping[str, int], workdir: str) -> Artifact:
        """Build into `workdir`. Raises ToolchainFailed (the source's fault) or ToolchainMissing."""

    def load(self, artifact: Artifact) -> Kernel:
        """Load a built kernel into this process. Raises OSError when the file cannot be loaded."""

    def roofline(self, workload: Workload, binding: Binding, threads: int, *, fresh: bool = False) -> Roofline:
        """Bytes moved once over measured bandwidth, against flops over measured peak. `fresh` measures the device again first
        and goes by the better figures: asked for before a kernel is called too fast, as the first ones may have been taken
        beside other work."""

    def estimate(self, artifact: Artifact, workload: Workload, binding: Binding) -> float:
        """Seconds that the built kernel would take on the target's device. Asked for on rung "simulated" alone; always called
        an estimate. A backend that only works on its device raises NotImplementedError."""

    def shown(self, source: KernelSource, tunables: Mapping[str, int]) -> str:
        """The kernel as an author reads it: `tunables` declared as the defaults, a library of ours as one line."""

    def written(self, text: str) -> KernelSource:
        """The kernel that an author's text stands for, origin "llm"; the inverse of `shown`. Raises ValueError with a
        reason that the author can act on; whether the kernel is any good is not asked here."""

    def guide(self) -> Guide:
        """What an author is told of this language, as data: no role of the search knows a language by itself."""

    def standalone(self, source: KernelSource, tunables: Mapping[str, int], target: str) -> Standalone:
        """The kernel for people who do not have us: a pure function of its text. Raises ValueError with the reason where
        the language has no such form."""
