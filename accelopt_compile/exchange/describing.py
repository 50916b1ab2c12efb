"""A definition of a workload that came from a model: so that its kernel can be exported although nobody defined the problem."""

from __future__ import annotations

import json
from typing import Any

from accelopt_compile.errors import AccelOptError
from accelopt_compile.exchange.links import Link
from accelopt_compile.exchange.schema import DTYPES, Definition, definition_from
from accelopt_compile.records import Dim, TensorSpec, Workload
from accelopt_compile.reference import reference_source
from accelopt_compile.wording import operators

SCHEMA_DTYPES = {short: name for name, short in DTYPES.items()}


class Unexportable(AccelOptError):
    """What the format of others cannot say; the message says what, and why."""


def described(workload: Workload) -> tuple[Definition, Link]:
    """A definition whose reference is the workload's own, and how the two fit. Raises Unexportable."""
    if workload.aliases:
        raise Unexportable("it writes over its inputs; a definition's outputs are tensors of their own")
    axes = _Axes(workload)
    inputs = {f"i{k}": axes.tensor(f"i{k}", spec) for k, spec in enumerate(workload.inputs)}
    axes.close()
    outputs = {f"o{k}": axes.tensor(f"o{k}", spec) for k, spec in enumerate(workload.output_specs)}
    raw = {
        "name": f"accelopt_{workload.digest[:16]}",
        "op_type": "fused",
        "description": f"{operators(workload)}; workload {workload.digest} of AccelOpt Compile",
        "axes": axes.found,
        "inputs": inputs,
        "outputs": outputs,
        "reference": _reference(workload),
        "constraints": axes.constraints,
    }
    definition = definition_from(json.loads(json.dumps(raw)))
    link = Link(
        workload=workload,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        symbols=tuple(f"s{definition.varying.index(symbol)}" for symbol in workload.symbols),
        scalars={},
        fixed={},
    )
    return definition, link


class _Axes:
    """The axes of a definition as its tensors name them: a symbol and each expression over symbols varies, a number does not."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.found: dict[str, dict[str, Any]] = {}
        self.constraints: list[str] = []
        self._names: dict[Dim, str] = {}
        self._closed = False

    def tensor(self, name: str, spec: TensorSpec) -> dict[str, Any]:
        if spec.dtype not in SCHEMA_DTYPES:
            raise Unexportable(f"{name} is {spec.dtype}; the format has {', '.join(SCHEMA_DTYPES)}")
        if not contiguous(spec):
            raise Unexportable(f"{name} has strides {spec.strides} for shape {spec.shape}; the format knows contiguous tensors")
        return {"shape": [self._axis(dim) for dim in spec.shape], "dtype": SCHEMA_DTYPES[spec.dtype]}

    def _axis(self, dim: Dim) -> str:
        if dim in self._names:
            return self._names[dim]
        if isinstance(dim, int):
            name, axis = f"n{dim}", {"type": "const", "value": dim}
        elif self._closed:
            raise Unexportable(f"an output has the size {dim}, which no input has; the format reads sizes from inputs")
        else:
            name, axis = (dim if dim in self.workload.symbols else f"d{len(self._names)}"), {"type": "var"}
            if name != dim:
                self.constraints.append(f"{name} == {dim}")
        self._names[dim], self.found[name] = name, axis
        return name

    def close(self) -> None:
        """The inputs are all there: from now on only constants may be new."""
        self._closed = True
        for symbol in self.workload.symbols:
            if symbol not in self._names:
                raise Unexportable(f"the size {symbol} is no dimension of an input by itself; the format could not read it")


def contiguous(spec: TensorSpec) -> bool:
    """Whether the strides are those of a tensor made anew: each the product of the sizes after it, as text or number."""
    from accelopt_compile.records import evaluate_dim

    for base in (3, 5, 7):  # sizes at which two different products do not agree by chance
        names = {f"s{k}": base + 2 * k for k in range(64)}
        expected = 1
        for size, stride in reversed(list(zip(spec.shape, spec.strides, strict=True))):
            count = evaluate_dim(size, names)
            if count != 1 and evaluate_dim(stride, names) != expected:
                return False
            expected *= count
    return True


def _reference(workload: Workload) -> str:
    """The workload's reference, called as the format calls one: `run(i0, ...)`, one result or a tuple."""
    names = ", ".join(f"i{k}" for k in range(len(workload.inputs)))
    sizes = [
        f"    {symbol} = {place}" for symbol, place in symbol_places(workload, [f"i{k}" for k in range(len(workload.inputs))])
    ]
    results = "[0]" if len(workload.outputs) == 1 else ""
    call = ", ".join(filter(None, (names, ", ".join(workload.symbols))))
    lines = [reference_source(workload), "", f"def run({names}):", *sizes, f"    return reference({call}){results}"]
    return "\n".join(lines) + "\n"


def symbol_places(workload: Workload, names: list[str]) -> list[tuple[str, str]]:
    """(symbol, "NAME.shape[dim]") for each symbol: where an input has it as a size by itself. Raises Unexportable."""
    places: dict[str, str] = {}
    for name, spec in zip(names, workload.inputs, strict=True):
        for k, dim in enumerate(spec.shape):
            if isinstance(dim, str) and dim in workload.symbols:
                places.setdefault(dim, f"{name}.shape[{k}]")
    missing = [symbol for symbol in workload.symbols if symbol not in places]
    if missing:
        raise Unexportable(f"{', '.join(missing)} is no dimension of an input by itself, so that no caller could give it")
    return [(symbol, places[symbol]) for symbol in workload.symbols]
