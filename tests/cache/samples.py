"""Records and workloads for the store's tests. Importable by child processes without pytest."""

from __future__ import annotations

from dataclasses import replace

from accelopt_compile.records import (
    ErrorReport,
    Experience,
    KernelSource,
    Node,
    Record,
    Ref,
    TensorSpec,
    Timing,
    Workload,
)

TARGET = "cpp-x86_64-avx2"


def workload(width: int = 8) -> Workload:
    """relu on f32[s0, width]."""
    spec = TensorSpec(dtype="f32", shape=("s0", width), strides=(width, 1))
    relu = Node(op="aten.relu.default", args=(Ref("i", 0),), outputs=(spec,))
    return Workload(inputs=(spec,), nodes=(relu,), outputs=(Ref("n", 0),), output_specs=(spec,), symbols=("s0",))


def winner(
    of: Workload | None = None,
    *,
    text: str = "int kernel;",
    us: float = 10.0,
    s0: int = 64,
    created: str = "2026-01-01",
    noise: float = 0.0,
    target: str = TARGET,
    environment: dict[str, str] | None = None,
) -> Record:
    """A winner that took `us` at binding `s0`."""
    return Record(
        outcome="winner",
        workload=(of or workload()).digest,
        target=target,
        binding={"s0": s0},
        source=KernelSource(language="cpp", text=text, tunables={"TILE": (8, 16)}, structure={"loop": "flat"}),
        tunables={"TILE": 16},
        timing=Timing(
            kernel_us=us,
            baselines_us={"eager": 20.0, "inductor": 15.0},
            speedup=1.5,
            low=1.4,
            high=1.6,
            blocks=9,
            threads=1,
            noise=noise,
        ),
        errors=ErrorReport(worst_share=0.5, cases=12),
        environment=environment or {},
        provenance={"run": "r1", "events": [1, 2.5, None]},
        created=created,
    )


def candidate(
    of: Workload | None = None,
    *,
    text: str = "int kernel;",
    us: float = 5.0,
    s0: int = 64,
    created: str = "2026-01-01",
    target: str = TARGET,
    environment: dict[str, str] | None = None,
) -> Record:
    """A kernel proven in simulation, whose time is estimated as `us` at binding `s0`."""
    share = 15.0 / us
    estimate = Timing(
        kernel_us=us, baselines_us={"unfused": 15.0}, speedup=share, low=share, high=share, blocks=0, threads=1, basis="estimated"
    )
    proven = winner(of, text=text, s0=s0, created=created, target=target, environment=environment)
    return replace(proven, outcome="candidate", rung="simulated", timing=estimate)


def baseline(
    of: Workload | None = None, *, s0: int = 64, created: str = "2026-01-02", environment: dict[str, str] | None = None
) -> Record:
    """A search that found nothing better than Inductor."""
    return Record(
        outcome="baseline",
        workload=(of or workload()).digest,
        target=TARGET,
        binding={"s0": s0},
        reason="no candidate was faster",
        environment=environment or {},
        created=created,
    )


def experience(
    lesson: str = "vectorise the row loop", *, backend: str = "cpp", family: str = "norm", arch: str = "avx2"
) -> Experience:
    """A slow-fast pair."""
    return Experience(
        backend=backend,
        family=family,
        arch=arch,
        workload="w",
        change={"structure.loop": "vector"},
        helped=True,
        speedup=1.3,
        lesson=lesson,
        tunables={"TILE": 8},
    )
