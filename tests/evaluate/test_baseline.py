"""What a kernel is timed against does the region's whole work, layout of the outputs included."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from accelopt_compile.evaluate.baseline import Baselines
from tests.backends.seeds import regions_of

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "a transposition": lambda x: x.t().contiguous(),
    "heads before positions": lambda x: x.view(1, 128, 4, 24).transpose(1, 2).contiguous(),
    "a transposed operand": lambda x: torch.relu(x.t()).contiguous() * 2,
    "nothing to lay out": lambda x: torch.softmax(x, -1),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_both_baselines_leave_the_strides_that_the_graph_has(name: str) -> None:
    """Without its copy a transposition was a view: every kernel lost to a baseline that moved nothing."""
    x = torch.randn(128, 96)
    ((workload, binding),) = regions_of(LAYOUTS[name], x)
    expected = LAYOUTS[name](x)
    (spec,) = workload.output_specs
    baselines = Baselines(workload, binding)
    compiled = baselines.inductor()
    assert compiled is not None
    given = x.as_strided(workload.bound_shape(workload.inputs[0], binding), workload.bound_strides(workload.inputs[0], binding))
    for made in (baselines.eager([given])[0], compiled([given])[0]):
        assert workload.bound_strides(spec, binding) == tuple(made.stride())
        torch.testing.assert_close(made.reshape(-1), expected.reshape(-1))
