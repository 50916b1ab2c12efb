"""What the calls of a workload are given: references to values, and literals."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records.tensors import DTYPES, dims_from

_REF = re.compile(r"([in])(\d+)(?:\.(\d+))?")


@dataclass(frozen=True)
class Ref:
    """A value inside a workload: input `index`, or output number `output` of node `index`."""

    kind: Literal["i", "n"]
    index: int
    output: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.index}" + (f".{self.output}" if self.output else "")


@dataclass(frozen=True)
class SymbolArg:
    """An integer argument that is an expression over symbols."""

    expr: str


@dataclass(frozen=True)
class DtypeArg:
    """A dtype argument, by our short name."""

    dtype: str


Arg = Any
"""Ref | SymbolArg | DtypeArg | bool | int | float | str | None | tuple of those."""


def refs_of(arg: object) -> list[Ref]:
    """Every value that an argument, or a list of arguments, names."""
    if isinstance(arg, Ref):
        return [arg]
    return [r for a in arg for r in refs_of(a)] if isinstance(arg, tuple | list) else []


def ref_from(text: str) -> Ref:
    """Inverse of `str(ref)`. Raises InvalidRecord."""
    match = _REF.fullmatch(text)
    if match is None:
        raise InvalidRecord(f"{text!r} is not a reference")
    kind: Literal["i", "n"] = "i" if match[1] == "i" else "n"
    return Ref(kind, int(match[2]), int(match[3] or 0))


def arg_json(arg: Arg) -> Any:
    """Typed literals: floats by their exact hexadecimal form, so that -0.0, inf and 0.1 are what they were."""
    match arg:
        case Ref():
            return {"ref": str(arg)}
        case SymbolArg():
            return {"sym": arg.expr}
        case DtypeArg():
            return {"dtype": arg.dtype}
        case float():
            return {"f": "nan" if math.isnan(arg) else arg.hex()}
        case bool() | int() | str() | None:
            return arg
        case tuple() | list():
            return [arg_json(a) for a in arg]
    raise InvalidRecord(f"argument {arg!r} of type {type(arg).__name__} has no canonical form")


def arg_from(data: Any) -> Arg:
    """Inverse of `arg_json`. Raises InvalidRecord, and TypeError and ValueError."""
    if isinstance(data, dict):
        (kind, value), *rest = data.items()
        if rest:
            raise InvalidRecord(f"{data!r} is not an argument")
        match kind:
            case "ref":
                return ref_from(value)
            case "sym":
                return SymbolArg(dims_from([str(value)])[0])  # type: ignore[arg-type]
            case "dtype":
                if value not in DTYPES:
                    raise InvalidRecord(f"unknown dtype {value!r}")
                return DtypeArg(value)
            case "f":
                return float.fromhex(value)
        raise InvalidRecord(f"unknown argument kind {kind!r}")
    if isinstance(data, list):
        return tuple(arg_from(a) for a in data)
    return data
