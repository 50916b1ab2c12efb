"""What a kernel is tried on: families of inputs, and other sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch

from accelopt_compile.dtypes import DTYPES
from accelopt_compile.evaluate.drawing import bools, floats, integers, some_of
from accelopt_compile.evaluate.families import AIMED, NONFINITE, any_nan, wide_ints
from accelopt_compile.evaluate.reference import FLOATS
from accelopt_compile.evaluate.roles import Role
from accelopt_compile.records import Binding, TensorSpec, Workload

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
    "constant_columns",
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
            values = floats(kind, shape, DTYPES[spec.dtype], generator)
            values = _middle_moved(values, seed) if kind == "replayed" else values
            values = values.abs() if role.nonnegative and family != "nonfinite" else values
        elif role.kind == "bool":
            values = bools(kind, shape, generator)
        else:
            bound = role.bound if integers_below is None or role.kind == "index" else min(role.bound, integers_below)
            wide = kind == "wide_ints" and role.kind == "int" and integers_below is None
            values = wide_ints(shape, DTYPES[spec.dtype], generator) if wide else integers(kind, shape, bound, generator)
            if role.negative and family == "offset":
                values = torch.where(bools("normal", shape, generator), values - role.bound, values)
            if role.compared and integers_below is None and family not in ("zero_rows", "impulse_last", "index_runs"):
                values = some_of(values, role.compared, generator)
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


def _middle_moved(x: torch.Tensor, seed: int) -> torch.Tensor:
    """`x` with its elements in another order, but for the first and the last: what looks only there, or adds all up, sees
    the same input."""
    flat = x.reshape(-1).clone()
    kept = min(8, flat.numel() // 3)
    order = torch.randperm(flat.numel() - 2 * kept, generator=torch.Generator().manual_seed((seed ^ 0x1D) & (2**63 - 1)))
    flat[kept : flat.numel() - kept] = flat[kept : flat.numel() - kept][order]
    return flat.view(x.shape)


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
