"""What a kernel is tried on: families of inputs, and what each input of a workload may hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from accelopt_compile.evaluate.families import AIMED, NONFINITE, aimed_floats, any_nan, index_runs, mask_runs
from accelopt_compile.evaluate.reference import DTYPES, FLOATS
from accelopt_compile.records import Binding, Node, Ref, TensorSpec, Workload

FAMILIES = (
    "normal",
    "replayed",
    "tiny",
    "large",
    "any_scale",
    "offset",
    "far_offset",
    "far_below",
    "row_scales",
    "uniform",
    "spikes",
    "zero_rows",
    "small_ints",
    "impulse_last",
    "constant_rows",
    "logits",
    "nonfinite",
    "subnormal",
    "negative_zeros",
    "ties",
    "near_max",
    "tile_edges",
    "sorted",
    "one_hot",
    *AIMED,
)
QUICK_FAMILIES = ("normal", "logits", "offset", "constant_rows", "nonfinite")
EVERYWHERE = ("normal", "tiny", "large", "uniform", "small_ints")
"""Families that apply to every float input; the others shape the largest inputs and leave weights and biases normal."""


MASKING = ("zero_rows", "constant_rows", "mask_runs")
"""Families whose boolean inputs have rows without a single true: what eager gives there, NaN too, must be given."""


@dataclass(frozen=True, kw_only=True)
class Role:
    """What an input may hold. `bound` is for kinds "index" (values in [0, bound)) and "int"; `compared` are the numbers that
    the workload compares an integer with, and for an "int" their neighbours: some elements take them."""

    kind: Literal["float", "index", "int", "bool"]
    bound: int = 0
    nonnegative: bool = False
    compared: tuple[int, ...] = ()


_COMPARES = re.compile(r"aten\.(eq|ne|lt|le|gt|ge)\.Scalar")
_SAME_VALUE = re.compile(
    r"aten\.(view|_unsafe_view|reshape|unsqueeze|squeeze|expand|slice|permute|t|transpose|clone|alias|detach|select|_to_copy"
    r"|copy|where|masked_fill|constant_pad_nd|minimum|maximum|clamp)\.|prims\.convert_element_type\."
)


def _index_uses(node: Node, workload: Workload, binding: Binding) -> list[tuple[Ref, int]]:
    """(value used as an index, size of the dimension it indexes) for one node."""

    def size(position: int, dim: Any) -> int:
        shape = workload.bound_shape(workload.spec_of(node.args[position]), binding)
        return shape[int(dim)] if shape else 1

    packet = node.op.rsplit(".", 1)[0]
    match packet:
        case "aten.embedding":
            return [(node.args[1], size(0, 0))]
        case "aten.gather" | "aten.scatter" | "aten.scatter_add" | "aten.scatter_reduce" | "aten.index_select" | "aten.index_add":
            return [(node.args[2], size(0, node.args[1]))]
        case "aten.index" | "aten._unsafe_index" | "aten.index_put" | "aten._unsafe_index_put":
            return [(index, size(0, dim)) for dim, index in enumerate(node.args[1]) if isinstance(index, Ref)]
        case "aten.nll_loss_forward" | "aten.nll_loss2d_forward":
            return [(node.args[1], size(0, 1 if len(workload.spec_of(node.args[0]).shape) > 1 else 0))]
        case "aten.embedding_dense_backward":
            return [(node.args[1], int(node.args[2]))]
    return []


def _sources(ref: Any, workload: Workload) -> set[int]:
    """Inputs whose values reach `ref` through operators that only move or select values."""
    if not isinstance(ref, Ref):
        return set()
    if ref.kind == "i":
        return {ref.index}
    node = workload.nodes[ref.index]
    if not _SAME_VALUE.match(node.op):
        return set()
    return set().union(*(_sources(a, workload) for a in node.args)) if node.args else set()


def _compared(workload: Workload) -> dict[int, tuple[int, ...]]:
    """For each input that is compared with whole numbers: these."""
    found: dict[int, set[int]] = {}
    for node in workload.nodes:
        if _COMPARES.match(node.op) and isinstance(node.args[1], int):
            for source in _sources(node.args[0], workload):
                found.setdefault(source, set()).add(node.args[1])
    return {source: tuple(sorted(values)) for source, values in found.items()}


def roles(workload: Workload, binding: Binding) -> list[Role]:
    """The role of each input at `binding`, by looking at what consumes it."""
    bounds: dict[int, int] = {}
    for node in workload.nodes:
        for ref, bound in _index_uses(node, workload, binding):
            for source in _sources(ref, workload):
                bounds[source] = min(bound, bounds.get(source, bound))
    largest = max((n for s in workload.inputs for n in workload.bound_shape(s, binding)), default=1)
    met = _compared(workload)
    found = []
    for index, spec in enumerate(workload.inputs):
        if spec.dtype in FLOATS:
            found.append(Role(kind="float"))
        elif spec.dtype == "b8":
            found.append(Role(kind="bool"))
        elif index in bounds:
            found.append(Role(kind="index", bound=bounds[index], compared=met.get(index, ())))
        else:
            near = tuple(sorted({value + step for value in met.get(index, ()) for step in (-1, 0, 1)}))
            found.append(Role(kind="int", bound=min(100, max(8, largest)), compared=near))
    return found


def make_inputs(
    workload: Workload,
    binding: Binding,
    family: str,
    seed: int,
    domain: Sequence[Role],
    *,
    integers_below: int | None = None,
) -> list[torch.Tensor]:
    """Fresh inputs with the workload's strides. `integers_below` bounds every plain integer (for references that refuse
    the usual ones)."""
    generator = torch.Generator().manual_seed(seed & (2**63 - 1))
    counts = [_numel(workload, spec, binding) for spec in workload.inputs]
    largest = max((c for c, spec in zip(counts, workload.inputs, strict=True) if spec.dtype in FLOATS), default=0)
    made = []
    for spec, role, count in zip(workload.inputs, domain, counts, strict=True):
        shape, strides = workload.bound_shape(spec, binding), workload.bound_strides(spec, binding)
        kind = family if family in EVERYWHERE or role.kind != "float" or 2 * count >= largest else "normal"
        if role.kind == "float":
            values = _floats(kind, shape, DTYPES[spec.dtype], generator)
            values = _middle_moved(values, seed) if kind == "replayed" else values
            values = values.abs() if role.nonnegative and family != "nonfinite" else values
        elif role.kind == "bool":
            values = _bools(kind, shape, generator)
        else:
            bound = role.bound if integers_below is None or role.kind == "index" else min(role.bound, integers_below)
            values = _integers(kind, shape, bound, generator)
            if role.compared and integers_below is None and family not in ("zero_rows", "impulse_last", "index_runs"):
                values = _some_of(values, role.compared, generator)
        values = values.to(DTYPES[spec.dtype])
        if kind in NONFINITE and role.kind == "float":
            values = any_nan(values, generator)
        made.append(_strided(values, shape, strides))
    return made


def _numel(workload: Workload, spec: TensorSpec, binding: Binding) -> int:
    count = 1
    for n in workload.bound_shape(spec, binding):
        count *= n
    return count


def _strided(values: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """`values` in the wanted layout. An expanded dimension (stride 0) repeats its first element."""
    if values.stride() == strides or values.numel() == 0:
        return values.as_strided(shape, strides) if values.numel() == 0 else values
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    target = torch.zeros(span, dtype=values.dtype).as_strided(shape, strides)
    view, source = target, values
    for dim, stride in enumerate(strides):
        if stride == 0 and shape[dim] > 1:
            view, source = view.narrow(dim, 0, 1), source.narrow(dim, 0, 1)
    view.copy_(source)
    return target


def _floats(family: str, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """float32 (float64 for float64) values of one family; the last dimension is a row."""
    work = torch.float64 if dtype == torch.float64 else torch.float32
    x = torch.randn(shape, generator=generator, dtype=work)
    rows = (*shape[:-1], 1) if shape else ()
    half = dtype in (torch.bfloat16, torch.float16)
    flat = x.view(-1)
    if family in AIMED:
        return aimed_floats(family, shape, dtype, x, generator)
    match family:
        case "tiny":
            x *= 1e-4
        case "large" | "logits":
            x *= 100
        case "any_scale":
            x *= float(torch.exp2(torch.rand((), generator=generator, dtype=work) * 16 - 8))
        case "offset":
            x += 50
        case "far_offset":
            x += 32 if half else 1024
        case "far_below":
            x -= 256 if half else 1024
        case "row_scales":
            x *= torch.exp2(torch.rand(rows, generator=generator, dtype=work) * 24 - 12)
        case "uniform":
            x = torch.rand(shape, generator=generator, dtype=work)
        case "spikes":
            flat[::37] *= 1e3
        case "zero_rows":
            x *= (torch.rand(rows, generator=generator) < 0.5).to(work)
        case "small_ints":
            x = torch.randint(-2, 3, shape, generator=generator).to(work)
        case "impulse_last":
            x.zero_()
            flat[-1:] = 1
        case "constant_rows":
            x = torch.randn(rows, generator=generator, dtype=work).expand(shape).contiguous()
        case "nonfinite":
            for step, value in ((53, float("nan")), (71, float("inf")), (97, float("-inf"))):
                start = int(torch.randint(0, max(1, min(8 * step, flat.numel())), (), generator=generator))
                flat[start :: step * 8] = value  # elsewhere in each input: a NaN must also meet a number
        case "one_hot":
            x = _one_hot(shape, generator).to(work)
        case "sorted" if shape and x.numel():  # the largest comes last, far above all that was seen before it
            x = (x * 100).sort(-1).values
            x[..., -1] = x[..., -1].abs() * 2 + 100
        case "ties":
            palette = torch.randn(4, generator=generator, dtype=work)
            x = palette[torch.randint(0, 4, shape, generator=generator)]
        case "tile_edges":
            at = torch.arange(shape[-1] if shape else 1) % 16
            x = torch.where((at == 0) | (at == 15), x, 0.0).view(shape)
        case "negative_zeros":
            zeros = x.sign() * torch.zeros((), dtype=work)
            x = torch.where(torch.rand(shape, generator=generator) < 0.5, x, zeros)
        case "subnormal":
            share = 0.5 + 0.5 * torch.rand(rows, generator=generator)
            x = torch.where(torch.rand(shape, generator=generator) < share, x * (torch.finfo(dtype).tiny / 2), x)
        case "near_max":  # one sign, so that no order of summation overflows where another does not
            sign = 1 - 2 * int(torch.randint(0, 2, (), generator=generator))
            large = flat[30::61]
            large.copy_((torch.rand(large.shape, generator=generator, dtype=work) + 1) * (sign * 0.25 * torch.finfo(dtype).max))
    return x


def _one_hot(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """One 1 in each row, at a random place."""
    if not shape:
        return torch.ones(())
    at = torch.randint(0, max(shape[-1], 1), (*shape[:-1], 1), generator=generator)
    return (torch.arange(shape[-1]) == at).to(torch.float32)


def _middle_moved(x: torch.Tensor, seed: int) -> torch.Tensor:
    """`x` with its elements in another order, but for the first and the last: what looks only there, or adds all up, sees
    the same input."""
    flat = x.reshape(-1).clone()
    kept = min(8, flat.numel() // 3)
    order = torch.randperm(flat.numel() - 2 * kept, generator=torch.Generator().manual_seed((seed ^ 0x1D) & (2**63 - 1)))
    flat[kept : flat.numel() - kept] = flat[kept : flat.numel() - kept][order]
    return flat.view(x.shape)


def _integers(family: str, shape: tuple[int, ...], bound: int, generator: torch.Generator) -> torch.Tensor:
    """Integers in [0, bound): random, or at the ends."""
    top = max(bound - 1, 0)
    x = torch.randint(0, max(bound, 1), shape, generator=generator)
    match family:
        case "small_ints":
            x = x % 3
        case "zero_rows":
            x = torch.zeros(shape, dtype=torch.int64)
        case "index_runs":
            x = index_runs(shape, bound, generator)
        case "impulse_last" | "constant_rows":
            x = torch.full(shape, top)
            x.view(-1)[: x.numel() // 2 * (family == "constant_rows")] = 0
    return x


def _some_of(x: torch.Tensor, values: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """`x` with about a third of its elements taken from `values`: at least one, and, of several, not all."""
    drawn = torch.tensor(values)[torch.randint(0, len(values), x.shape, generator=generator)]
    here = torch.rand(x.shape, generator=generator) < 0.35
    if x.numel():
        one = int(torch.randint(0, x.numel(), (), generator=generator))
        here.view(-1)[one - 1] = False
        here.view(-1)[one] = True
    return torch.where(here, drawn, x)


def _bools(family: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Random masks; in "constant_rows" whole rows are true or false, in "zero_rows" all false, in "logits" all true."""
    rows = (*shape[:-1], 1) if shape else ()
    match family:
        case "constant_rows":
            return (torch.rand(rows, generator=generator) < 0.5).expand(shape).contiguous()
        case "zero_rows":
            return torch.zeros(shape, dtype=torch.bool)
        case "logits":
            return torch.ones(shape, dtype=torch.bool)
        case "mask_runs":
            return mask_runs(shape, generator)
    return torch.rand(shape, generator=generator) < 0.5


SMALL = 13
"""Sizes are cut to this where many families are tried: a prime, so that no block divides it."""


def bindings_to_try(workload: Workload, binding: Mapping[str, int]) -> list[dict[str, int]]:
    """Other sizes a kernel must be right at: all 1, one 0, each + 1, primes, and doubled and fourfold (a record serves sizes up
    to that far from its own) the first, and the first of an output: the first may be how many rows a table has."""
    names = workload.symbols
    if not names:
        return []
    shown = " ".join(str(d) for spec in workload.output_specs for d in spec.shape)
    grown = dict.fromkeys([names[0], *[n for n in names if re.search(rf"\b{n}\b", shown)][:1]])
    tried = [
        {n: min(binding[n], SMALL) for n in names},
        dict.fromkeys(names, 1),
        *({**{n: min(binding[n], 7) for n in names}, name: 0} for name in grown),
        {n: binding[n] + 1 for n in names},
        {n: 13 + 18 * k for k, n in enumerate(names)},
        *({**dict(binding), name: times * binding[name]} for name in grown for times in (2, 4)),
    ]
    unique = [dict(t) for t in {tuple(sorted(t.items())): t for t in tried}.values()]
    return [t for t in unique if t != dict(binding)]
