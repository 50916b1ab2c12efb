"""What a generated kernel says of itself at its top, in any language."""

from __future__ import annotations

from accelopt_compile.records import Workload


def heading(workload: Workload, mark: str) -> list[str]:
    """The region's operators as lines of comment; `mark` begins one."""
    lines = [f"{mark} AccelOpt kernel, generated from the region:"]
    lines += [f"{mark}   i{k}: {s.dtype}{list(s.shape)} strides {list(s.strides)}" for k, s in enumerate(workload.inputs)]
    for k, n in enumerate(workload.nodes):
        lines.append(f"{mark}   n{k} = {n.op}({', '.join(str(a) for a in n.args)})"[:160])
    lines.append(f"{mark}   return " + ", ".join(str(r) for r in workload.outputs))
    over = "read before it is overwritten"
    return [*lines, *(f"{mark}   output {out} lies over i{given}: {over}" for out, given in workload.aliases)]
