"""What FlashInfer-Bench's JSON says, read and checked: Definition, Workload, and a file with either.

The names follow that schema (package flashinfer-bench 0.1.2, `flashinfer_bench/data/`), but one: what it calls a workload is
an `Instance` here, because a `Workload` of ours is what a kernel computes. Read without the package and without pydantic.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelopt_compile.errors import InvalidRecord, UsageError
from accelopt_compile.records import Dim, canonical_json, sha256_text

DTYPES = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "bool": "b8",
}
"""The schema's dtypes that a workload may use, as our short names. It also has float8 and float4, which none may yet."""

MOST_AXES, MOST_TENSORS, MOST_TEXT = 64, 64, 1 << 20
"""Axes and tensors of one definition, and bytes of its file, that are read; published ones have a dozen, and 10 KB."""


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One input or output: its axes' names, or None for a Python scalar."""

    dtype: str
    shape: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A computation: `axes` maps a name to its size, None where it varies; `reference` is Python with a function `run`.
    `raw` is the JSON that it was read from."""

    name: str
    op_type: str
    axes: Mapping[str, int | None]
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    reference: str
    raw: Mapping[str, Any]

    @property
    def varying(self) -> tuple[str, ...]:
        """The axes without a fixed size, in order: axis k is called s<k> where it stands in an expression of ours."""
        return tuple(name for name, size in self.axes.items() if size is None)

    @property
    def digest(self) -> str:
        return sha256_text(canonical_json({"exchange": "flashinfer-bench", "definition": _without_floats(self.raw)}))

    def dims(self, tensor: Tensor) -> tuple[Dim, ...]:
        """The tensor's shape over "s0", "s1", ...: the varying axes in order."""
        number = {name: f"s{k}" for k, name in enumerate(self.varying)}
        return tuple(number.get(axis) or _known(self.axes[axis]) for axis in tensor.shape or ())


@dataclass(frozen=True, kw_only=True)
class Instance:
    """Values for a definition's varying axes, and where its inputs come from: {"type": "random" | "scalar" | "safetensors"}."""

    axes: Mapping[str, int]
    inputs: Mapping[str, Mapping[str, Any]]
    uuid: str

    def to_json(self) -> dict[str, Any]:
        return {"axes": dict(self.axes), "inputs": {k: dict(v) for k, v in self.inputs.items()}, "uuid": self.uuid}

    def scalars(self) -> dict[str, int | float | bool]:
        """The values of its scalar inputs."""
        return {name: spec["value"] for name, spec in self.inputs.items() if spec["type"] == "scalar"}


def definition_from(data: Any) -> Definition:
    """Read a Definition. Raises InvalidRecord, which names the field."""
    try:
        axes = {str(name): _axis(name, axis) for name, axis in data["axes"].items()}
        found = Definition(
            name=_text(data, "name"),
            op_type=_text(data, "op_type"),
            axes=axes,
            inputs={str(name): _tensor(name, spec, axes) for name, spec in data["inputs"].items()},
            outputs={str(name): _tensor(name, spec, axes) for name, spec in data["outputs"].items()},
            reference=_text(data, "reference"),
            raw=dict(data),
        )
    except (KeyError, TypeError, AttributeError) as failure:
        raise InvalidRecord(f"not a definition: {type(failure).__name__} {failure}") from failure
    _check(found)
    return found


def _check(found: Definition) -> None:
    if len(found.axes) > MOST_AXES or len(found.inputs) + len(found.outputs) > MOST_TENSORS or not found.outputs:
        raise InvalidRecord(
            f"definition {found.name}: {len(found.axes)} axes, {len(found.inputs)} inputs, {len(found.outputs)} outputs"
        )
    for name in (*found.inputs, *found.outputs):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise InvalidRecord(f"definition {found.name}: {name[:80]!r} cannot be the name of an argument")
    if both := set(found.inputs) & set(found.outputs):
        raise InvalidRecord(f"definition {found.name}: {sorted(both)} are inputs and outputs")
    try:
        functions = [node.name for node in ast.parse(found.reference).body if isinstance(node, ast.FunctionDef)]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as failure:
        raise InvalidRecord(f"definition {found.name}: its reference is no Python: {failure}") from failure
    if "run" not in functions:
        raise InvalidRecord(f"definition {found.name}: its reference has no function `run`")


def instance_from(data: Any, definition: Definition) -> Instance:
    """Read a workload of `definition`; scalars without a value are refused. Raises InvalidRecord."""
    try:
        found = Instance(
            axes={str(name): _size(name, size) for name, size in data["axes"].items()},
            inputs={str(name): _input(name, spec) for name, spec in data["inputs"].items()},
            uuid=_text(data, "uuid"),
        )
    except (KeyError, TypeError, AttributeError) as failure:
        raise InvalidRecord(f"not a workload of {definition.name}: {type(failure).__name__} {failure}") from failure
    missing = set(definition.varying) - set(found.axes)
    missing |= {n for n, t in definition.inputs.items() if t.shape is None and n not in found.scalars()}
    if missing:
        raise InvalidRecord(f"workload {found.uuid} of {definition.name} gives no value for {', '.join(sorted(missing))}")
    return found


def read_definition(path: Path) -> Definition:
    """The definition in a JSON file. Raises UsageError."""
    try:
        return definition_from(json.loads(_read(path)))
    except (ValueError, RecursionError, InvalidRecord) as failure:
        raise UsageError(f"{path} holds no definition of FlashInfer-Bench: {failure}") from failure


def read_instances(path: Path, definition: Definition) -> list[Instance]:
    """The workloads of `definition` in a file: one JSON object or JSON Lines; each a Workload, or a Trace that holds one.
    Traces of other definitions are passed over. Raises UsageError."""
    text = _read(path, most=64 * MOST_TEXT)
    found = []
    for number, line in enumerate([text] if path.suffix == ".json" else text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            if "workload" in data:
                if data.get("definition") != definition.name:
                    continue
                data = data["workload"]
            found.append(instance_from(data, definition))
        except (ValueError, TypeError, RecursionError, InvalidRecord) as failure:
            raise UsageError(f"{path}, line {number}: {failure}") from failure
    return found


def _read(path: Path, most: int = MOST_TEXT) -> str:
    try:
        if path.stat().st_size > most:
            raise UsageError(f"{path} has {path.stat().st_size} bytes; at most {most} are read")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise UsageError(f"{path} cannot be read: {failure}") from failure


def _text(data: Any, name: str) -> str:
    value = data[name]
    if not isinstance(value, str) or not value:
        raise InvalidRecord(f"{name} is {str(value)[:80]!r}, not a text")
    return value


def _size(name: object, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 48:
        raise InvalidRecord(f"axis {str(name)[:80]} is {str(value)[:80]!r}, not a size")
    return value


def _axis(name: object, data: Any) -> int | None:
    kind = data["type"]
    if kind not in ("const", "var"):
        raise InvalidRecord(f"axis {str(name)[:80]} has type {str(kind)[:80]!r}; it is const or var")
    return _size(name, data["value"]) if kind == "const" else None


def _tensor(name: object, data: Any, axes: Mapping[str, int | None]) -> Tensor:
    dtype, shape = data["dtype"], data["shape"]
    if dtype not in DTYPES:
        raise InvalidRecord(f"{str(name)[:80]} has dtype {str(dtype)[:80]!r}; kernels are written for {', '.join(DTYPES)}")
    if shape is not None and (not isinstance(shape, list) or any(axis not in axes for axis in shape)):
        raise InvalidRecord(f"{str(name)[:80]} has shape {str(shape)[:80]}, which is no list of axes")
    return Tensor(dtype=dtype, shape=None if shape is None else tuple(shape))


def _input(name: object, data: Any) -> Mapping[str, Any]:
    kind = data["type"]
    if kind == "scalar" and isinstance(data["value"], int | float) and math.isfinite(data["value"]):
        return {"type": "scalar", "value": data["value"]}
    if kind == "random":
        return {"type": "random"}
    if kind == "safetensors":
        return {"type": "safetensors", "path": _text(data, "path"), "tensor_key": _text(data, "tensor_key")}
    raise InvalidRecord(f"input {str(name)[:80]} is {str(data)[:80]}; it is random, scalar or safetensors")


def _known(size: int | None) -> int:
    assert size is not None
    return size


def _without_floats(value: Any) -> Any:
    """The same JSON with floats as texts: canonical JSON of ours has none."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dict):
        return {k: _without_floats(v) for k, v in value.items()}
    return [_without_floats(v) for v in value] if isinstance(value, list) else value
