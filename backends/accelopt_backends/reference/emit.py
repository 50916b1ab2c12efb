"""A workload as Python text: readable, self-contained, and the whole of a reference kernel."""

from __future__ import annotations

import math
from typing import Any

from accelopt_compile.records import Arg, DtypeArg, Ref, SymbolArg, TensorSpec, Workload

_TEMPLATE = """# Reference kernel of workload {digest}: the region's ATen calls in eager.
# In scope: aten, prims, tensors(pointers, specs, sizes), dtype(name).

INPUTS = {inputs}
OUTPUTS = {outputs}
SYMBOLS = {symbols}


def region(sizes, inputs):
{unpack}
{body}
    return ({results})


def kernel(pointers, sizes, threads):
    inputs = tensors(pointers[:{count}], INPUTS, SYMBOLS, sizes)
    outputs = tensors(pointers[{count}:], OUTPUTS, SYMBOLS, sizes)
    for _ in range({passes} * REPEAT):
        results = region(sizes, inputs)
    for output, result in zip(outputs, results):
        output.copy_(result)
    return 0
"""


_MADE_ON_CPU = {"aten.full.default": ["device='cpu'"], "prims.iota.default": ["device='cpu'", "requires_grad=False"]}
"""Arguments of operators that make tensors from nothing: a workload does not name a device."""


def emit(workload: Workload, *, passes: int = 1) -> str:
    """The text of a reference kernel that does the work `passes` times the tunable REPEAT."""
    unpack = [f"    {name} = sizes[{k}]" for k, name in enumerate(workload.symbols)]
    unpack += [f"    i{k} = inputs[{k}]" for k in range(len(workload.inputs))]
    body = []
    for number, node in enumerate(workload.nodes):
        arguments = [_argument(a, workload) for a in node.args]
        arguments += [f"{name}={_argument(a, workload)}" for name, a in node.kwargs]
        arguments += _MADE_ON_CPU.get(node.op, [])
        body.append(f"    n{number} = {node.op}({', '.join(arguments)})")
    return _TEMPLATE.format(
        digest=workload.digest[:12],
        inputs=_specs(workload.inputs),
        outputs=_specs(workload.output_specs),
        symbols=workload.symbols,
        unpack="\n".join(unpack),
        body="\n".join(body),
        results="".join(f"{_argument(ref, workload)}, " for ref in workload.outputs),
        count=len(workload.inputs),
        passes=passes,
    )


def _specs(specs: tuple[TensorSpec, ...]) -> str:
    lines = [f"    ({s.dtype!r}, {s.shape!r}, {s.strides!r}),\n" for s in specs]
    return "[\n" + "".join(lines) + "]"


def _argument(arg: Arg, workload: Workload) -> Any:
    match arg:
        case Ref(kind="i"):
            return f"i{arg.index}"
        case Ref():
            several = len(workload.nodes[arg.index].outputs) > 1
            return f"n{arg.index}[{arg.output}]" if several else f"n{arg.index}"
        case SymbolArg():
            return f"({arg.expr})"
        case DtypeArg():
            return f"dtype({arg.dtype!r})"
        case float():
            return repr(arg) if math.isfinite(arg) else f"float({str(arg)!r})"
        case tuple() | list():
            return "[" + ", ".join(str(_argument(a, workload)) for a in arg) + "]"
    return repr(arg)
