"""What stands for a timing where the device is not here: the backend's estimate, against one of the region without fusion.

Both come from the same model of the device, so their quotient ranks kernels; it is no speedup, and nothing is adopted for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from accelopt_backends.base import Backend
from accelopt_compile.errors import EvaluatorDied
from accelopt_compile.records import Arg, Artifact, Node, Ref, Timing, Workload, refs_of

_MOVES_NOTHING = frozenset(
    f"aten.{name}"
    for name in (
        *("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "permute", "transpose", "t", "expand", "slice", "select"),
        *("split", "split_with_sizes", "unbind", "alias", "detach", "as_strided"),
    )
)
"""Views: free in any implementation."""


def estimated(backend: Backend, artifact: Artifact, workload: Workload, binding: Mapping[str, int], threads: int) -> Timing:
    """The backend's estimate of a built kernel at `binding`. Raises EvaluatorDied where that is no time."""
    kernel_us = 1e6 * backend.estimate(artifact, workload, binding)
    if not (math.isfinite(kernel_us) and kernel_us > 0):
        raise EvaluatorDied(f"{backend.name} estimates {kernel_us} us for a kernel, which is no time")
    against = unfused_us(backend, workload, binding, threads)
    share = against / kernel_us
    return Timing(
        kernel_us=kernel_us,
        baselines_us={"unfused": against},
        speedup=share,
        low=share,
        high=share,
        blocks=0,
        threads=threads,
        basis="estimated",
    )


def unfused_us(backend: Backend, workload: Workload, binding: Mapping[str, int], threads: int) -> float:
    """Microseconds of the region's operators one after another, each launched and at its own roofline: the least that a region
    without fusion could take on the device."""
    alone = [node_alone(workload, number) for number, node in enumerate(workload.nodes) if not _moves_nothing(node)]
    bounds = [backend.roofline(one, binding, threads) for one in alone or [workload]]
    return 1e6 * sum(bound.seconds + bound.launch_s for bound in bounds)


def node_alone(workload: Workload, number: int) -> Workload:
    """One operator of a workload as a workload: what it reads are the inputs, all that it writes the outputs."""
    node = workload.nodes[number]
    read = list(dict.fromkeys(refs_of([*node.args, *(value for _, value in node.kwargs)])))
    place = {ref: Ref("i", position) for position, ref in enumerate(read)}

    def moved(arg: Arg) -> Arg:
        if isinstance(arg, Ref):
            return place[arg]
        return tuple(moved(one) for one in arg) if isinstance(arg, tuple | list) else arg

    args = tuple(moved(arg) for arg in node.args)
    kwargs = tuple((name, moved(arg)) for name, arg in node.kwargs)
    return replace(
        workload,
        inputs=tuple(workload.spec_of(ref) for ref in read),
        nodes=(replace(node, args=args, kwargs=kwargs),),
        outputs=tuple(Ref("n", 0, output) for output in range(len(node.outputs))),
        output_specs=node.outputs,
        aliases=(),
    )


def _moves_nothing(node: Node) -> bool:
    return node.op.rsplit(".", 1)[0] in _MOVES_NOTHING
