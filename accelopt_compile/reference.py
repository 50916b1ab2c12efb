"""What a workload computes, as code anyone can run: a printable Python function, and the same compiled.

The text is built from the checked record alone and needs only torch. In float64 form every floating-point input and
dtype is raised to float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accelopt_compile.records import Dim, DtypeArg, Node, Ref, SymbolArg, TensorSpec, Workload

_TORCH_DTYPE = {
    "f64": "torch.float64",
    "f32": "torch.float32",
    "bf16": "torch.bfloat16",
    "f16": "torch.float16",
    "i64": "torch.int64",
    "i32": "torch.int32",
    "i16": "torch.int16",
    "i8": "torch.int8",
    "u8": "torch.uint8",
    "b8": "torch.bool",
}
_FLOATS = ("f32", "bf16", "f16")


def reference_source(workload: Workload, *, dtype64: bool = False) -> str:
    """`def reference(i0, i1, ..., s0, s1, ...)` returning a tuple of tensors with the strides of `output_specs`."""
    return "\n".join(_Writer(workload, dtype64).lines()) + "\n"


def reference(workload: Workload, *, dtype64: bool = False, device: str = "cpu") -> Callable[..., tuple[Any, ...]]:
    """The compiled reference: takes the tensors, then the sizes in `workload.symbols` order. `device` is what torch calls the
    one that the tensors are on.

    Raises InvalidRecord for an operator that this version of torch lacks.
    """
    import torch

    from accelopt_compile.nodes import overload

    for node in workload.nodes:
        overload(node.op)
    namespace: dict[str, Any] = {"torch": torch, "inf": float("inf"), "nan": float("nan")}
    text = reference_source(workload, dtype64=dtype64)
    if device != "cpu":
        from accelopt_compile import attention_anywhere
        from accelopt_compile.attention import BACKWARD, FORWARD

        text = text.replace(f"torch.ops.{FORWARD}.default(", "attention.forward(").replace("device='cpu'", f"device={device!r}")
        text = text.replace(f"torch.ops.{BACKWARD}.default(", "attention.backward(")
        namespace["attention"] = attention_anywhere
    exec(compile(text, f"<reference {workload.digest[:12]}>", "exec"), namespace)
    function: Callable[..., tuple[Any, ...]] = namespace["reference"]
    return function


class _Writer:
    def __init__(self, workload: Workload, dtype64: bool) -> None:
        self.w = workload
        self.dtype64 = dtype64

    def lines(self) -> list[str]:
        w = self.w
        parameters = [*(f"i{i}" for i in range(len(w.inputs))), *w.symbols]
        text = [
            "import torch",
            "from math import inf, nan",
            "",
            "",
            f"def reference({', '.join(parameters)}):",
            *(f"    # i{i}: {_describe(spec)}" for i, spec in enumerate(w.inputs)),
        ]
        if self.dtype64:
            text.extend(f"    i{i} = i{i}.to(torch.float64)" for i, s in enumerate(w.inputs) if s.dtype in _FLOATS)
        text.extend(
            f"    n{i} = {self._call(node)}  # {', '.join(_describe(o) for o in node.outputs)}" for i, node in enumerate(w.nodes)
        )
        text.extend(
            f"    o{k} = torch.empty_strided({_tuple(spec.shape)}, {_tuple(spec.strides)}, dtype={self._dtype(spec.dtype)}, "
            f"device={self._device()}).copy_({self._ref(ref)})"
            for k, (ref, spec) in enumerate(zip(w.outputs, w.output_specs, strict=True))
        )
        text.append(f"    return ({' '.join(f'o{k},' for k in range(len(w.outputs)))})")
        return text

    def _call(self, node: Node) -> str:
        args = [self._arg(a) for a in node.args]
        kwargs = dict(node.kwargs)
        named = [f"{name}={self._arg(value)}" for name, value in sorted(kwargs.items())]
        if node.op in ("aten.full.default", "prims.iota.default"):
            named.append(f"device={self._device()}")
        if node.op == "prims.iota.default":
            named.append("requires_grad=False")
        return f"torch.ops.{node.op}({', '.join((*args, *named))})"

    def _arg(self, arg: Any) -> str:
        match arg:
            case Ref():
                return self._ref(arg)
            case SymbolArg():
                return arg.expr
            case DtypeArg():
                return self._dtype(arg.dtype)
            case tuple():
                return "[" + ", ".join(self._arg(a) for a in arg) + "]"
        return repr(arg)

    def _ref(self, ref: Ref) -> str:
        if ref.kind == "i":
            return f"i{ref.index}"
        several = len(self.w.nodes[ref.index].outputs) > 1
        return f"n{ref.index}[{ref.output}]" if several else f"n{ref.index}"

    def _dtype(self, short: str) -> str:
        return _TORCH_DTYPE["f64" if self.dtype64 and short in _FLOATS else short]

    def _device(self) -> str:
        return "i0.device" if self.w.inputs else "'cpu'"


def _describe(spec: TensorSpec) -> str:
    return f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _tuple(dims: tuple[Dim, ...]) -> str:
    return "(" + "".join(f"{d}, " for d in dims).rstrip() + ")"
