"""The reference is text that runs from the record alone."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

from accelopt_compile.errors import InvalidRecord
from accelopt_compile.partition import partition
from accelopt_compile.records import Node, Ref, TensorSpec, Workload
from accelopt_compile.reference import reference, reference_source
from accelopt_compile.signature import sign
from tests.regions.models import graph_of


def workload(dtype: torch.dtype) -> Workload:
    def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x.float(), (48,)).to(x.dtype) * w

    (region,) = partition(graph_of(norm, torch.randn(3, 40, 48).to(dtype), torch.randn(48).to(dtype))).regions
    return sign(region).workload


def test_the_text_needs_only_torch(tmp_path: object) -> None:
    """Run by a fresh interpreter, it gives what the compiled one gives."""
    w = workload(torch.bfloat16)
    x, scale = torch.ones(2, 5, 48, dtype=torch.bfloat16) * 3, torch.ones(48, dtype=torch.bfloat16)
    order = [scale if len(spec.shape) == 1 else x for spec in w.inputs]
    names = [
        "torch.ones(48, dtype=torch.bfloat16)" if v is scale else "torch.ones(2, 5, 48, dtype=torch.bfloat16) * 3" for v in order
    ]
    code = f"{reference_source(w)}\n(out,) = reference({', '.join(names)}, 2, 5)\nprint(out.shape, out.dtype, out.sum().item())"
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    (expected,) = reference(w)(*order, 2, 5)
    assert f"{expected.shape} {expected.dtype} {expected.sum().item()}" == run.stdout.strip()


def test_the_float64_version_raises_inputs_and_dtypes() -> None:
    """Nothing of the computation is left in bfloat16 or float32."""
    w = workload(torch.bfloat16)
    x, scale = torch.randn(2, 5, 48).bfloat16(), torch.randn(48).bfloat16()
    order = [scale if len(spec.shape) == 1 else x for spec in w.inputs]
    (exact,) = reference(w, dtype64=True)(*order, 2, 5)
    eps = torch.finfo(torch.float32).eps
    by_hand = x.double() * (x.double().square().mean(-1, keepdim=True) + eps).rsqrt() * scale.double()
    assert torch.float64 == exact.dtype
    torch.testing.assert_close(exact, by_hand, rtol=1e-7, atol=1e-9)
    assert "bfloat16" not in "".join(reference_source(w, dtype64=True).split("#")[0::2])


def test_outputs_have_the_declared_strides_for_any_size() -> None:
    """Also for sizes that were not seen at compile time, zero among them."""
    (region,) = partition(graph_of(lambda x: (x * 2).exp().transpose(0, 1).contiguous(), torch.randn(3, 40, 48))).regions
    w = sign(region).workload
    for sizes in ((2, 7), (1, 1), (0, 5)):
        tensor = torch.randn(w.bound_shape(w.inputs[0], dict(zip(w.symbols, sizes, strict=True))))
        (out,) = reference(w)(tensor, *sizes)
        assert w.bound_strides(w.output_specs[0], dict(zip(w.symbols, sizes, strict=True))) == out.stride()


def test_an_operator_that_torch_lacks_is_an_invalid_record() -> None:
    """A record is untrusted: its operators are looked up, never evaluated."""
    spec = TensorSpec(dtype="f32", shape=(4,), strides=(1,))
    bad = Workload(
        inputs=(spec,),
        nodes=(Node(op="aten.no_such.default", args=(Ref("i", 0),), outputs=(spec,)),),
        outputs=(Ref("n", 0),),
        output_specs=(spec,),
    )
    with pytest.raises(InvalidRecord, match="no_such"):
        reference(bad)


def test_the_largest_of_all_has_an_answer() -> None:
    """argmax() without a dimension takes no list of them: its region has a reference, whoever writes a kernel for it."""
    x = torch.randn(64, 512)
    (region,) = partition(graph_of(lambda x: (x * 2 + 1).argmax(), x)).regions
    signed = sign(region)
    (found,) = reference(signed.workload)(x, *signed.binding.values())
    assert torch.equal((x * 2 + 1).argmax(), found)
