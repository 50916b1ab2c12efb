"""Random values of one family: numbers, integers, truth values. The last dimension is a row."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from accelopt_compile.evaluate.families import AIMED, aimed_floats, index_runs, mask_runs


def floats(family: str, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """float32 (float64 for float64) values of one family; normal numbers where it says nothing else."""
    work = torch.float64 if dtype == torch.float64 else torch.float32
    x = torch.randn(shape, generator=generator, dtype=work)
    if family in AIMED:
        return aimed_floats(family, shape, dtype, x, generator)
    return _placed(family, _drawn(family, x, dtype, generator), dtype, generator)


def _drawn(family: str, x: torch.Tensor, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """`x`, normal numbers, in the families that draw every element from another distribution."""
    shape, work = x.shape, x.dtype
    rows = (*shape[:-1], 1) if shape else ()
    half = dtype in (torch.bfloat16, torch.float16)
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
        case "constant_rows":
            x = torch.randn(rows, generator=generator, dtype=work).expand(shape).contiguous()
        case "constant_columns":
            x = torch.randn(shape[-1:], generator=generator, dtype=work).expand(shape).contiguous()
        case "small_ints":
            x = torch.randint(-2, 3, shape, generator=generator).to(work)
        case "ties":
            palette = torch.randn(4, generator=generator, dtype=work)
            x = palette[torch.randint(0, 4, shape, generator=generator)]
    return x


def _placed(family: str, x: torch.Tensor, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """`x`, normal numbers, in the families that put something else at some places."""
    shape, work = x.shape, x.dtype
    rows = (*shape[:-1], 1) if shape else ()
    flat = x.view(-1)
    match family:
        case "spikes":
            flat[::37] *= 1e3
        case "zero_rows":
            x *= (torch.rand(rows, generator=generator) < 0.5).to(work)
        case "impulse_last":
            x.zero_()
            flat[-1:] = 1
        case "nonfinite":
            # and where log1p(x) and 1/(1-x) have their ends
            for step, value in ((53, float("nan")), (71, float("inf")), (97, float("-inf")), (61, -1.0), (83, 1.0)):
                start = int(torch.randint(0, max(1, min(8 * step, flat.numel())), (), generator=generator))
                flat[start :: step * 8] = value  # elsewhere in each input: a NaN must also meet a number
        case "one_hot":
            x = _one_hot(shape, generator).to(work)
        case "sorted" if shape and x.numel():  # the largest comes last, far above all that was seen before it
            x = (x * 100).sort(-1).values
            x[..., -1] = x[..., -1].abs() * 2 + 100
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


def integers(family: str, shape: tuple[int, ...], bound: int, generator: torch.Generator) -> torch.Tensor:
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


def some_of(x: torch.Tensor, values: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """`x` with about a third of its elements taken from `values`: at least one, and, of several, not all."""
    drawn = torch.tensor(values)[torch.randint(0, len(values), x.shape, generator=generator)]
    here = torch.rand(x.shape, generator=generator) < 0.35
    if x.numel():
        one = int(torch.randint(0, x.numel(), (), generator=generator))
        here.view(-1)[one - 1] = False
        here.view(-1)[one] = True
    return torch.where(here, drawn, x)


def bools(family: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
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
