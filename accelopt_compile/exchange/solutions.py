"""A stored kernel as a Solution: one Python module that allocates the outputs and runs the kernel, without anything of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from accelopt_backends.base import Standalone
from accelopt_compile.exchange.describing import Unexportable, symbol_places
from accelopt_compile.exchange.links import Link, shape_text
from accelopt_compile.exchange.schema import Definition
from accelopt_compile.records import Record

MAIN = "main.py"
AUTHOR = "accelopt-compile"
_TORCH = {
    "f64": "torch.float64", "f32": "torch.float32", "bf16": "torch.bfloat16", "f16": "torch.float16", "i64": "torch.int64",
    "i32": "torch.int32", "i16": "torch.int16", "i8": "torch.int8", "u8": "torch.uint8", "b8": "torch.bool",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A record with the definition it solves and its kernel as plain code."""

    record_id: str
    record: Record
    definition: Definition
    link: Link
    standalone: Standalone

    @property
    def candidate(self) -> bool:
        """Whether the kernel never ran on the device it is for."""
        return self.record.outcome == "candidate"

    @property
    def name(self) -> str:
        kind = "_candidate" if self.candidate else ""
        return re.sub(r"[^0-9A-Za-z_]", "_", f"accelopt_{self.definition.name}_{self.record.target}{kind}_{self.record_id[:12]}")


def solution(exported: Exported) -> dict[str, Any]:
    """The Solution's JSON. Raises Unexportable."""
    standalone = exported.standalone
    files = {MAIN: f"{header(exported)}{standalone.text}\n\n{wrapper(exported.definition, exported.link)}", **standalone.files}
    return {
        "name": exported.name,
        "definition": exported.definition.name,
        "author": AUTHOR,
        "description": description(exported),
        "spec": {
            "language": standalone.language,
            "target_hardware": list(standalone.hardware),
            "entry_point": f"{MAIN}::run",
            "dependencies": list(standalone.dependencies),
            "destination_passing_style": False,
        },
        "sources": [{"path": path, "content": text} for path, text in files.items()],
    }


def description(exported: Exported) -> str:
    """What the kernel is and how it was proven, in a line."""
    record = exported.record
    choices = {**(record.source.structure if record.source else {}), **record.tunables}
    chosen = ", ".join(f"{name}={value}" for name, value in sorted(choices.items()))
    proven = f"proven on rung {record.rung}"
    if exported.candidate:
        proven = f"CANDIDATE: {proven}, it has not run on {record.target} yet"
    sizes = ", ".join(f"{name}={value}" for name, value in sorted(record.binding.items())) or "fixed sizes"
    return f"{proven}, at {sizes}; target {record.target}; record {exported.record_id}" + (f"; {chosen}" if chosen else "")


def header(exported: Exported) -> str:
    lines = [f"{exported.definition.name}: exported from a store of AccelOpt Compile.", "", description(exported)]
    text = "\n".join(lines).replace("\\", "/").replace('"', "'")
    return f'"""{text}"""\n\n'


def wrapper(definition: Definition, link: Link) -> str:
    """`def run(...)`: the definition's inputs in its order, its outputs in its order. Sizes come from the inputs' shapes; what
    the kernel was made for is checked first. Raises Unexportable."""
    workload = link.workload
    names = [name for name in link.inputs if name is not None]
    places = symbol_places(workload, names)
    results = [f"result{k}" for k in range(len(workload.outputs))]
    body = [f"{symbol} = {place}" for symbol, place in places]
    for name, value in link.scalars.items():
        body += _refusal(f"{name} != {value!r}", f"this kernel was made for {name} = {value!r}")
    for name, spec in zip(names, workload.inputs, strict=True):
        body += _refusal(
            f"tuple({name}.shape) != {shape_text(spec.shape)} or {name}.dtype != {_TORCH[spec.dtype]}",
            f"this kernel was made for {name} of shape {shape_text(spec.shape)} and {_TORCH[spec.dtype]}",
        )
    device = f"{names[0]}.device" if names else '"cpu"'
    for result, spec in zip(results, workload.output_specs, strict=True):
        made = f"{shape_text(spec.shape)}, {shape_text(spec.strides)}, dtype={_TORCH[spec.dtype]}, device={device}"
        body.append(f"{result} = torch.empty_strided({made})")
    inputs = [f"{name}.contiguous()" for name in names]
    body.append(f"{Standalone.ENTRY}({', '.join([*inputs, *results, *workload.symbols])})")
    ordered = [results[link.outputs.index(name)] for name in definition.outputs]
    body.append(f"return {', '.join(ordered)}")
    lines = [f"def run({', '.join(definition.inputs)}):", *(f"    {line}" for line in body)]
    return "\n".join(lines) + "\n"


def _refusal(condition: str, message: str) -> Sequence[str]:
    return [f"if {condition}:", f"    raise ValueError({json.dumps(message)})"]


def check_exportable(definition: Definition, link: Link) -> None:
    """Raises Unexportable where no function of the definition's inputs can stand for the workload."""
    from accelopt_compile.exchange.describing import contiguous

    if link.workload.aliases:
        raise Unexportable("it writes over its inputs; a definition's outputs are tensors of their own")
    if not link.whole(definition):
        raise Unexportable(f"the workload is only a part of {definition.name}")
    for name, spec in zip(link.inputs, link.workload.inputs, strict=True):
        if not contiguous(spec):
            raise Unexportable(
                f"input {name} has strides {spec.strides} for shape {spec.shape}; the format knows contiguous tensors"
            )
    taken = {*link.workload.symbols, *(f"result{k}" for k in range(len(link.outputs))), "torch", Standalone.ENTRY}
    if both := taken & set(definition.inputs):
        raise Unexportable(f"the input names {sorted(both)} of {definition.name} are taken by the exported function")
