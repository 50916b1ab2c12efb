"""How wrong a kernel may be: a small multiple of eager's own error against float64, plus what rounding on the way does.

For one output: g is the reference in float64 on the inputs as given, r is eager, u the unit roundoff of the output's
dtype, K the elements reduced into one output. S is how far g moves when the inputs move by (32 + 4 sqrt K) / 8 units in
their last place and every intermediate result by one (rms over random probes), so that an ill-conditioned element is
allowed more and a well-conditioned one is not. A = 8 S, and S at the low precision on top where the workload rounds to
half precision on its way (3 times that where a matrix product sums what was rounded: one rounding is at most a unit, a
sum of many is normally distributed, and a right kernel was once 2.4 standard deviations off where eager happened to be
right). On top of the rounding of g itself comes sqrt K u |g| (u of float32 at most): the order in which K terms are
summed is free, and S does not see it where the summed terms hardly depend on the inputs.

From a few probes S itself is uncertain. So elements that should be alike count as four more probes of each: the mean of S
squared over the element's row (its last dimension) or over the elements whose g has the same binary exponent, whichever is
smaller. The row alone lets small elements of a softmax or a
SiLU be zero beside large ones; the exponent alone mixes rows of different scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from accelopt_compile.evaluate.reference import FLOATS
from accelopt_compile.evaluate.roundings import CHAIN, FLUSHED, HALVES, ROUNDINGS, TINY, UNIT
from accelopt_compile.evaluate.sensitivity import Moves
from accelopt_compile.records import Binding, Ref, Workload

HALF_NAMES = ("f16", "bf16")

ROUNDED_OPERANDS = 3.0
"""How many times the move that roundings to half precision make a product of rounded values may be off."""
HALF_BIAS = 4.0
"""How many times the rms move that roundings to half precision make in a projection, a right kernel may be off there."""
ALIKE = 4
"""As how many probes of an element the elements like it count."""
SIZES = 1100
"""Binary exponents of float64 that are told apart, to either side of 0."""

_MATMUL = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.mv", "aten.dot", "aten._int_mm")
_MOVES = (
    "slice", "select", "expand", "view", "split", "index", "embedding", "gather", "permute", "squeeze", "unsqueeze", "full",
    "topk",
)  # fmt: skip


NanAllowed = Literal["", "for_infinite", "anywhere"]


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """The limits for one float output: per element, on the largest and the rms error, and on three projections.

    `golden` is float64 and contiguous, NaN or Inf where it is; `finite` masks where golden and eager are both finite
    (None when everywhere); `limit` is per element. `nan` says where a NaN is right too (see `nan_allowed`). `alike` says that
    many elements have one value, which round together.
    """

    golden: torch.Tensor
    eager: torch.Tensor
    limit: torch.Tensor
    finite: torch.Tensor | None
    largest: float
    rms: float
    projections: tuple[float, ...]
    norms: tuple[float, ...]
    nan: NanAllowed = ""
    alike: bool = False


def nan_allowed(workload: Workload) -> NanAllowed:
    """Where, on inputs with NaN or Inf, a NaN is right although eager has something else.

    "for_infinite": variance and mean of a row with an infinity, which eager's vector and scalar paths give as NaN or as
    Inf. "anywhere": attention, where eager's blocks decide whether a hidden NaN spreads and a row of NaN scores is 0.
    """
    if any("attention" in node.op for node in workload.nodes):
        return "anywhere"
    return "for_infinite" if any(".var" in node.op for node in workload.nodes) else ""


def reduced_elements(workload: Workload, binding: Binding) -> int:
    """K: the most elements that one node reduces into one of its results (1 for pointwise work)."""
    most = 1
    for node in workload.nodes:
        refs = [a for a in node.args if isinstance(a, Ref)]
        if not refs or any(f".{move}" in node.op for move in _MOVES):
            continue
        if node.op.rsplit(".", 1)[0] in _MATMUL:
            most = max(most, (workload.bound_shape(workload.spec_of(refs[-1]), binding) or (1,))[-2:][0])
            continue
        taken = max(math.prod(workload.bound_shape(workload.spec_of(r), binding)) for r in refs)
        given = max(math.prod(workload.bound_shape(s, binding)) for s in node.outputs)
        most = max(most, taken // max(given, 1))
        if "cum" in node.op or "attention" in node.op:
            most = max(most, max(workload.bound_shape(workload.spec_of(refs[0]), binding), default=1))
    return most


def input_steps(reduced: int, *, equal_terms: bool = False) -> float:
    """By how many units in the last place the inputs move in a probe. Where all terms of a sum are equal, by as much as a
    chain of additions can be off: a variance there is that error squared."""
    usual = (32 + 4 * math.sqrt(max(reduced, 1))) / ROUNDINGS
    return max(usual, min(reduced, CHAIN) / 3) if equal_terms else usual


def rounds_to_half(workload: Workload) -> bool:
    """Whether any value on the way is half precision."""
    return any(spec.dtype in HALF_NAMES for node in workload.nodes for spec in node.outputs if spec.dtype in FLOATS)


def pooled(s: torch.Tensor, g: torch.Tensor, probes: int) -> torch.Tensor:
    """S over `probes` probes, and as it were ALIKE more that saw what elements like it did: those of its row (all, where rows
    are short) or those of g's size, whichever moved less."""
    if not s.numel():
        return s
    square = s.square().contiguous()  # the golden answer has the strides of the program's result
    rows = square.mean(-1, keepdim=True) if s.dim() and s.shape[-1] >= 16 else square.mean()
    size = torch.where(g == 0, 0, torch.frexp(g).exponent.clamp(-SIZES, SIZES) + SIZES + 1).reshape(-1).to(torch.int64)
    count = torch.zeros(2 * SIZES + 2, dtype=square.dtype)
    total = count.scatter_add(0, size, square.reshape(-1))
    alike = (total / count.scatter_add(0, size, torch.ones_like(square.reshape(-1))).clamp_(min=1))[size].view(square.shape)
    share = ALIKE / (ALIKE + probes)
    return square.mul_(1 - share).add_(torch.minimum(alike, rows), alpha=share).sqrt_()


def rounds_operands(workload: Workload) -> bool:
    """Whether a matrix product is computed from half precision values that are not inputs."""
    return any(
        ref.kind == "n" and workload.spec_of(ref).dtype in HALF_NAMES
        for node in workload.nodes
        if node.op.rsplit(".", 1)[0] in _MATMUL
        for ref in node.args
        if isinstance(ref, Ref)
    )


def allow(
    golden: torch.Tensor,
    eager: torch.Tensor,
    moved: Moves,
    moved_low: Moves | None,
    reduced: int,
    *,
    equal_terms: bool = False,
    rounded: float = 1.0,
) -> Allowance:
    """The limits for one float output from golden, eager, S and, where the workload rounds to half, the low-precision S, of
    which `rounded` times are allowed. `equal_terms` where what is summed is one value again and again."""
    unit = UNIT[eager.dtype]
    factor = 3.0 if eager.dtype in HALVES or moved_low is not None else 2.0
    floor = TINY[eager.dtype] * (1 if eager.dtype in FLUSHED else 2 * unit)
    golden, r = golden.contiguous(), eager.to(torch.float64).contiguous()
    mask = torch.isfinite(golden) & torch.isfinite(r)
    finite = None if bool(mask.all()) else mask
    g = golden if finite is None else torch.where(mask, golden, 0.0)
    d = r - golden if finite is None else torch.where(mask, r - golden, 0.0)
    s = pooled(moved.elements if finite is None else torch.where(mask, moved.elements, 0.0), g, moved.probes)
    a = ROUNDINGS * s
    strict = a
    if moved_low is not None:
        low = moved_low.elements
        a = a + rounded * pooled(low if finite is None else torch.where(mask, low, 0.0), g, moved_low.probes)
    e, size = d.abs(), g.abs()
    chain = min(reduced, CHAIN) / 2 if equal_terms else 0.0
    summed = max(math.sqrt(max(reduced, 1)), chain) * min(unit, UNIT[torch.float32])
    limit = factor * e + a + (2 * unit + summed) * size + floor
    count = max(g.numel(), 1)

    def rms(x: torch.Tensor) -> float:
        return math.sqrt(float(x.square().sum()) / count)

    largest = factor * _max(e) + _max(a) + (2 * unit + summed) * _max(size) + floor
    projections, norms = _projections(d, g, strict, unit + summed, (0.0,) * 3 if moved_low is None else moved_low.along)
    return Allowance(
        golden=golden,
        eager=eager.contiguous(),
        limit=limit,
        finite=finite,
        largest=largest,
        rms=factor * rms(e) + 0.35 * rms(a) + (0.75 * unit + 0.35 * summed) * rms(g) + floor,
        projections=projections,
        norms=norms,
        alike=equal_terms,
    )


def _projections(
    d: torch.Tensor, g: torch.Tensor, a: torch.Tensor, unit: float, low: tuple[float, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """For b in (1, g, |g|): the fixed part of the limit on |<c-g, b>| / <b, b>, and <b, b>. Empty below 256 elements.

    `a` is 8 S in float32: an exponential may be a little off on one side everywhere. Roundings to half precision are on
    no side: `low` is how far they moved the sums themselves.
    """
    if g.numel() < 256:
        return (), ()
    size = g.abs()
    norms = (float(g.numel()), float(g.square().sum()), float(g.square().sum()))
    limits = []
    for b, magnitude, norm, moved in zip((None, g, size), (None, size, size), norms, low, strict=True):
        if norm <= 0:
            return (), ()
        bias = float((d if b is None else d * b).sum())
        slack = float((a if magnitude is None else a * magnitude).sum())
        rounding = float((size if magnitude is None else size * magnitude).sum())
        limits.append((4 * abs(bias) + 0.5 * slack + HALF_BIAS * moved + 0.05 * unit * rounding) / norm)
    return tuple(limits), norms


def _max(x: torch.Tensor) -> float:
    return float(x.max()) if x.numel() else 0.0
