"""The records that cross seams. Frozen, keyword-only, and each convertible to and from plain JSON.

Imports nothing of ours but `errors`. A number carries its unit in its name. Everything read back from
JSON is checked here (`InvalidRecord`), because the cache, the network and a model are untrusted.

A `Workload` is what a kernel computes and on what. Dimensions are integers, or expressions over the
workload's symbols written as Python arithmetic ("s0", "s0*s1"): a kernel takes the symbols' values as
run-time arguments, so that one kernel serves every size. The values a record was measured at are its
`binding`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import keyword
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from accelopt_compile.errors import InvalidRecord

KEY_VERSION = 1
"""Version of the canonical workload form; raised when equal regions would get another digest."""

Dim = int | str
"""A size or stride: an integer, or an arithmetic expression over symbols (`+ - * // %` and names)."""

Binding = Mapping[str, int]
"""Values of a workload's symbols."""

ITEM_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "b8": 1}
DTYPES = tuple(ITEM_BYTES)

_SYMBOL = re.compile(r"s\d{1,6}")
_EXPRESSION = re.compile(r"[s0-9 +\-*/%()]+")


def _arithmetic(dim: str) -> bool:
    """Whether an expression may be evaluated: sums, products and quotients; a power could take for ever."""
    return len(dim) <= 500 and "**" not in dim and _EXPRESSION.fullmatch(dim) is not None


def evaluate_dim(dim: Dim, binding: Binding) -> int:
    """The integer value of `dim` under `binding`. Raises InvalidRecord for anything but arithmetic on known symbols."""
    if isinstance(dim, int):
        return dim
    if not _arithmetic(dim):
        raise InvalidRecord(f"dimension {dim[:80]!r} is not arithmetic over symbols")
    try:
        value = eval(dim, {"__builtins__": {}}, dict(binding))  # only [s0-9+-*/%()] gets here
    except (NameError, SyntaxError, ZeroDivisionError, TypeError) as failure:
        raise InvalidRecord(f"dimension {dim!r} has no value under {dict(binding)}: {failure}") from failure
    return int(value)


def canonical_json(value: Any) -> str:
    """RFC 8785 form of the JSON that we write: sorted keys, no spaces, ASCII; floats are never in it (see `Literal floats`)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha256_text(text: str) -> str:
    """Hex sha256 of UTF-8 text."""
    return hashlib.sha256(text.encode()).hexdigest()


# ---------------------------------------------------------------- workload


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """Type and layout of a tensor. Strides count elements; 0 is an expanded dimension."""

    dtype: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]


def bytes_of(spec: TensorSpec, binding: Binding) -> int:
    """Bytes of a tensor's distinct elements: an expanded dimension counts once."""
    sizes = (evaluate_dim(size, binding) for size, stride in zip(spec.shape, spec.strides, strict=True) if stride != 0)
    return ITEM_BYTES[spec.dtype] * math.prod(sizes)


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


@dataclass(frozen=True, kw_only=True)
class Node:
    """One ATen (or prims) call: `op` is "aten.add.Tensor"; `outputs` describes each result (dtype, shape; strides
    of intermediates are contiguous by convention). A node with one tensor result has one entry."""

    op: str
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...] = ()
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A region in canonical form. `digest` is its key.

    `symbols` are named s0, s1, ... in order of first use in `inputs`. `numerics` holds the flags that change
    what a right answer is (fp32 precision, determinism), sorted by name. `aliases` pairs outputs with inputs, as
    (output, input): the caller gives one memory for both, equal in type and layout, and a kernel may overwrite an element
    when it has read all that depends on it. What is computed is the same as without.
    """

    inputs: tuple[TensorSpec, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Ref, ...]
    output_specs: tuple[TensorSpec, ...]
    symbols: tuple[str, ...] = ()
    numerics: tuple[tuple[str, str], ...] = ()
    aliases: tuple[tuple[int, int], ...] = ()

    @functools.cached_property  # asked for once an experience, thousands of times a search
    def digest(self) -> str:
        return sha256_text(self.to_text())

    def to_text(self) -> str:
        """Canonical JSON text; its sha256 is the digest."""
        return canonical_json(self.to_json())

    def to_json(self) -> dict[str, Any]:
        aliases = {"aliases": [list(pair) for pair in self.aliases]} if self.aliases else {}
        return {
            **aliases,
            "key_version": KEY_VERSION,
            "inputs": [_spec_json(s) for s in self.inputs],
            "nodes": [
                [n.op, [_arg_json(a) for a in n.args], {k: _arg_json(v) for k, v in n.kwargs}, [_spec_json(s) for s in n.outputs]]
                for n in self.nodes
            ],
            "outputs": [str(r) for r in self.outputs],
            "output_specs": [_spec_json(s) for s in self.output_specs],
            "symbols": list(self.symbols),
            "numerics": dict(self.numerics),
        }

    @staticmethod
    def from_json(data: Any) -> Workload:
        """Inverse of `to_json`. Raises InvalidRecord."""
        try:
            if data["key_version"] != KEY_VERSION:
                raise InvalidRecord(f"workload key_version {data['key_version']!r}, this version reads {KEY_VERSION}")
            return Workload(
                inputs=tuple(_spec_from(s) for s in data["inputs"]),
                nodes=tuple(
                    Node(
                        op=_op_name(op),
                        args=tuple(_arg_from(a) for a in args),
                        kwargs=tuple(sorted((str(k), _arg_from(v)) for k, v in kwargs.items())),
                        outputs=tuple(_spec_from(s) for s in outs),
                    )
                    for op, args, kwargs, outs in data["nodes"]
                ),
                outputs=tuple(ref_from(r) for r in data["outputs"]),
                output_specs=tuple(_spec_from(s) for s in data["output_specs"]),
                symbols=tuple(str(s) for s in data["symbols"]),
                numerics=tuple(sorted((str(k), str(v)) for k, v in data["numerics"].items())),
                aliases=tuple((int(out), int(given)) for out, given in data.get("aliases", ())),
            )._checked()
        except (KeyError, TypeError, ValueError, AttributeError) as failure:
            raise InvalidRecord(f"not a workload: {type(failure).__name__} {failure}") from failure

    def _checked(self) -> Workload:
        """Itself. Raises InvalidRecord for names that are none (they become Python), and for an alias of tensors that cannot
        share memory."""
        for name in self.symbols:
            if not _SYMBOL.fullmatch(name):
                raise InvalidRecord(f"{name[:80]!r} is not a symbol")
        for name, _ in (pair for node in self.nodes for pair in node.kwargs):
            if not name.isidentifier() or keyword.iskeyword(name):
                raise InvalidRecord(f"{name[:80]!r} is not the name of an argument")
        for out, given in self.aliases:
            if not (0 <= out < len(self.outputs) and 0 <= given < len(self.inputs)):
                raise InvalidRecord(f"alias ({out}, {given}) of tensors that are not there")
            if self.output_specs[out] != self.inputs[given]:
                raise InvalidRecord(f"output {out} cannot lie over input {given}: {self.output_specs[out]} {self.inputs[given]}")
        for side in zip(*self.aliases, strict=True):
            if len(set(side)) != len(side):
                raise InvalidRecord(f"aliases {self.aliases} name a tensor twice")
        return self

    def spec_of(self, ref: Ref) -> TensorSpec:
        """The type of any value in the workload."""
        return self.inputs[ref.index] if ref.kind == "i" else self.nodes[ref.index].outputs[ref.output]

    def bound_shape(self, spec: TensorSpec, binding: Binding) -> tuple[int, ...]:
        return tuple(evaluate_dim(d, binding) for d in spec.shape)

    def bound_strides(self, spec: TensorSpec, binding: Binding) -> tuple[int, ...]:
        return tuple(evaluate_dim(d, binding) for d in spec.strides)


def _spec_json(s: TensorSpec) -> list[Any]:
    return [s.dtype, list(s.shape), list(s.strides)]


def _dims_from(values: Any) -> tuple[Dim, ...]:
    for v in values:
        if isinstance(v, bool) or not isinstance(v, int | str) or (isinstance(v, str) and not _arithmetic(v)):
            raise InvalidRecord(f"{str(v)[:80]!r} is not a dimension")
    return tuple(values)


def _spec_from(data: Any) -> TensorSpec:
    dtype, shape, strides = data
    if dtype not in DTYPES:
        raise InvalidRecord(f"unknown dtype {dtype!r}")
    return TensorSpec(dtype=dtype, shape=_dims_from(shape), strides=_dims_from(strides))


_OP = re.compile(r"(aten|prims)\.[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*")
_REF = re.compile(r"([in])(\d+)(?:\.(\d+))?")


def _op_name(op: Any) -> str:
    if not isinstance(op, str) or not _OP.fullmatch(op):
        raise InvalidRecord(f"{op!r} is not an aten or prims operator")
    return op


def ref_from(text: str) -> Ref:
    """Inverse of `str(ref)`. Raises InvalidRecord."""
    match = _REF.fullmatch(text)
    if match is None:
        raise InvalidRecord(f"{text!r} is not a reference")
    kind: Literal["i", "n"] = "i" if match[1] == "i" else "n"
    return Ref(kind, int(match[2]), int(match[3] or 0))


def _arg_json(arg: Arg) -> Any:
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
            return [_arg_json(a) for a in arg]
    raise InvalidRecord(f"argument {arg!r} of type {type(arg).__name__} has no canonical form")


def _arg_from(data: Any) -> Arg:
    if isinstance(data, dict):
        (kind, value), *rest = data.items()
        if rest:
            raise InvalidRecord(f"{data!r} is not an argument")
        match kind:
            case "ref":
                return ref_from(value)
            case "sym":
                return SymbolArg(_dims_from([str(value)])[0])  # type: ignore[arg-type]
            case "dtype":
                if value not in DTYPES:
                    raise InvalidRecord(f"unknown dtype {value!r}")
                return DtypeArg(value)
            case "f":
                return float.fromhex(value)
        raise InvalidRecord(f"unknown argument kind {kind!r}")
    if isinstance(data, list):
        return tuple(_arg_from(a) for a in data)
    return data


# ---------------------------------------------------------------- kernels


@dataclass(frozen=True, kw_only=True)
class KernelSource:
    """One text file with one entry point, human-readable.

    `tunables` maps a name to its allowed values, the declared default first; `structure` names the structural
    choices the text was rendered with (empty when a person or a model wrote it); `origin` says who wrote it.
    """

    language: str
    text: str
    tunables: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    structure: Mapping[str, str] = field(default_factory=dict)
    origin: Literal["seed", "mutation", "llm", "human", "import"] = "seed"

    @property
    def digest(self) -> str:
        return sha256_text(self.text)

    @property
    def rendered(self) -> bool:
        """Whether a template wrote the text, so that `structure` and tunables say all about it."""
        return self.origin in ("seed", "mutation")

    def defaults(self) -> dict[str, int]:
        """The declared default of each tunable."""
        return {name: values[0] for name, values in self.tunables.items()}

    def to_json(self) -> dict[str, Any]:
        """What `source_from_json` reads back."""
        return {
            "language": self.language,
            "text": self.text,
            "tunables": {name: list(values) for name, values in self.tunables.items()},
            "structure": dict(self.structure),
            "origin": self.origin,
        }


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A built kernel: the file to load, the digest of what it was built from, what the toolchain said of it."""

    path: str
    source_digest: str
    tunables: Mapping[str, int]
    features: Mapping[str, Any] = field(default_factory=dict)
    build_s: float = 0.0


class Stage(str, Enum):
    """Where a candidate fell."""

    SCREEN = "screen"
    BUILD = "build"
    RUN = "run"
    TIMEOUT = "timeout"
    SHAPE = "shape"
    NUMERICS = "numerics"
    MUTATION = "mutation"
    NONDETERMINISM = "nondeterminism"
    CHEAT = "cheat"
    SLOWER = "slower"


Rung = Literal["device", "compiled", "simulated"]
"""How a kernel was proven: it ran on the target's device; the toolchain built it for that device; it ran in a simulation."""

Basis = Literal["measured", "estimated"]
"""What a time rests on: a clock on the device, or a model of it."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """A paired measurement. `speedup` is the better baseline's time over ours (geometric mean of block medians), ours with
    what a reader of its outputs waits longer than after the baseline's; `low` and `high` its 95 % interval; `baselines_us`
    holds each baseline's median ("inductor", "eager"); `kernel_us` is ours without the reader.

    With the basis "estimated" nothing was timed: `kernel_us` is the backend's estimate, `baselines_us` that of the region's
    operators one after another ("unfused"), `low` and `high` are `speedup`, and `blocks` is 0.
    """

    kernel_us: float
    baselines_us: Mapping[str, float]
    speedup: float
    low: float
    high: float
    blocks: int
    threads: int
    noise: float = 0.0
    basis: Basis = "measured"

    def to_json(self) -> dict[str, Any]:
        """What `timing_from_json` reads back. A measurement names no basis, as before there were estimates."""
        data = {name: getattr(self, name) for name in ("kernel_us", "speedup", "low", "high", "blocks", "threads", "noise")}
        data["baselines_us"] = dict(self.baselines_us)
        return data if self.basis == "measured" else data | {"basis": self.basis}


def timing_from_json(data: Any) -> Timing:
    """Inverse of `Timing.to_json`. Raises TypeError and ValueError."""
    timing = Timing(**data)
    if timing.basis not in ("measured", "estimated"):
        raise ValueError(f"a timing that is neither measured nor estimated, but {str(timing.basis)[:40]!r}")
    if timing.basis == "estimated" and (timing.blocks != 0 or not timing.low == timing.speedup == timing.high):
        raise ValueError("an estimate with blocks or an interval, which only a measurement has")
    return timing


@dataclass(frozen=True, kw_only=True)
class ErrorReport:
    """Worst error against float64, as a share of what is allowed (<= 1 passes), and the case it came from."""

    worst_share: float
    cases: int
    worst_case: str = ""


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """Right, and timed. Whether it is fast enough to adopt is `timing.low`'s to say."""

    errors: ErrorReport
    timing: Timing
    features: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """Not usable, and why, in words an author of kernels can act on."""

    stage: Stage
    reason: str
    diagnosis: str = ""


Verdict = Accepted | Rejected


# ---------------------------------------------------------------- search


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One step to try on one candidate. `text` goes to the executor verbatim; `change` is its machine form, if any
    (built-in planner: {"structure.NAME": "VALUE"})."""

    text: str
    change: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An accepted kernel of the run. `id` counts candidates within the run; `parent` is None for the seed."""

    id: int
    parent: int | None
    plan: Plan | None
    source: KernelSource
    tunables: Mapping[str, int]
    verdict: Accepted


@dataclass(frozen=True, kw_only=True)
class Experience:
    """A slow-fast pair and what it taught. Scope: (backend, family, arch). `change` as in `Plan`; `speedup` > 1 is
    the measured fast over slow ratio; a change that hurt is stored with its direction reversed (`change` is then the
    change to undo and `helped` is False).

    `basis` says whether the two were timed, or their times estimated. `title` is the lesson in a few words, where it has any.
    `change`, `structure` and `tunables` are empty where a kernel of the pair was written by a model or a person: no
    configuration stands for it. `origin` says where it is from, in words for people and filters: run, round, slow_candidate,
    fast_candidate, plan, source (the fast kernel's digest), slow_by and fast_by (who wrote the kernels), proposer, model,
    env.NAME for the environment.
    """

    backend: str
    family: str
    arch: str
    workload: str
    change: Mapping[str, str]
    helped: bool
    speedup: float
    lesson: str
    slow: str = ""
    fast: str = ""
    structure: Mapping[str, str] = field(default_factory=dict)
    tunables: Mapping[str, int] = field(default_factory=dict)
    title: str = ""
    origin: Mapping[str, str] = field(default_factory=dict)
    basis: Basis = "measured"


# ---------------------------------------------------------------- the store's record


Outcome = Literal["winner", "baseline", "candidate"]
OUTCOMES: tuple[Outcome, ...] = ("winner", "baseline", "candidate")
RUNGS: tuple[Rung, ...] = ("device", "compiled", "simulated")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the store keeps of one finished search on (workload, target, binding): a winner, or "baseline" and why, or, where
    the target's device was not there, candidates: kernels that are right, and whose speed is an estimate. Candidates are never
    served; `accelopt cache promote` on the device decides on them.

    `environment` is compared on load; `verification` and `provenance` are plain JSON for people and tools.
    """

    outcome: Outcome
    workload: str
    target: str
    binding: Mapping[str, int]
    reason: str = ""
    rung: Rung = "device"
    source: KernelSource | None = None
    tunables: Mapping[str, int] = field(default_factory=dict)
    timing: Timing | None = None
    errors: ErrorReport | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""

    def to_json(self) -> dict[str, Any]:
        from dataclasses import asdict

        data = {k: v for k, v in asdict(self).items() if v is not None}
        data["binding"] = dict(self.binding)
        if self.timing is not None:
            data["timing"] = self.timing.to_json()
        return data

    @staticmethod
    def from_json(data: Any) -> Record:
        """Inverse of `to_json`, checked. Raises InvalidRecord."""
        try:
            source = data.get("source")
            timing = data.get("timing")
            errors = data.get("errors")
            if data["outcome"] not in OUTCOMES:
                raise InvalidRecord(f"unknown outcome {data['outcome']!r}")
            return Record(
                outcome=data["outcome"],
                workload=str(data["workload"]),
                target=str(data["target"]),
                binding={str(k): int(v) for k, v in data["binding"].items()},
                reason=str(data.get("reason", "")),
                rung=data.get("rung", "device"),
                source=None if source is None else source_from_json(source),
                tunables={str(k): int(v) for k, v in data.get("tunables", {}).items()},
                timing=None if timing is None else timing_from_json(timing),
                errors=None if errors is None else ErrorReport(**errors),
                environment={str(k): str(v) for k, v in data.get("environment", {}).items()},
                provenance=dict(data.get("provenance", {})),
                created=str(data.get("created", "")),
            )._checked()
        except (KeyError, TypeError, ValueError, AttributeError) as failure:
            raise InvalidRecord(f"not a record: {type(failure).__name__} {failure}") from failure

    def _checked(self) -> Record:
        """Itself. Raises InvalidRecord for what no search leaves: an estimate may never pass for a measurement, nor a kernel
        that did not run on the device for one that did."""
        basis = None if self.timing is None else self.timing.basis
        if self.rung not in RUNGS:
            raise InvalidRecord(f"unknown rung {self.rung!r}")
        if self.outcome == "winner" and (self.source is None or self.timing is None):
            raise InvalidRecord("a winner without source or timing")
        if self.outcome == "winner" and (self.rung != "device" or basis != "measured"):
            raise InvalidRecord(f"a winner of rung {self.rung}, its time {basis}: one is proven and timed on the device")
        if self.outcome == "candidate" and (self.source is None or self.errors is None or self.timing is None):
            raise InvalidRecord("a candidate without source, errors or estimate")
        if self.outcome == "candidate" and (self.rung == "device" or basis != "estimated"):
            raise InvalidRecord(f"a candidate of rung {self.rung}, its time {basis}: the device has not decided on one")
        if self.outcome == "baseline" and (self.rung != "device" or basis == "estimated"):
            raise InvalidRecord(f"a baseline of rung {self.rung}: only the device says that nothing is faster")
        return self


def source_from_json(data: Any) -> KernelSource:
    """Read back a KernelSource. Raises InvalidRecord."""
    try:
        return KernelSource(
            language=str(data["language"]),
            text=str(data["text"]),
            tunables={str(k): tuple(int(v) for v in values) for k, values in data.get("tunables", {}).items()},
            structure={str(k): str(v) for k, v in data.get("structure", {}).items()},
            origin=data.get("origin", "import"),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as failure:
        raise InvalidRecord(f"not a kernel source: {type(failure).__name__} {failure}") from failure


def bucket_distance(measured: Binding, wanted: Binding) -> float:
    """How far two bindings are apart: the largest |log2| ratio over the symbols (0 is equal; a zero size is far)."""
    distance = 0.0
    for name, value in wanted.items():
        other = measured.get(name)
        if other is None:
            return math.inf
        if other == value:
            continue
        if min(other, value) <= 0:
            return math.inf
        distance = max(distance, abs(math.log2(value / other)))
    return distance


Sources = Sequence[KernelSource]
