"""Seeds for families of operators, on shapes that no block divides, in every stored type, at every structure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from accelopt_backends.base import Products
from accelopt_backends.loops.nests import schedule
from accelopt_backends.loops.values import Graph
from accelopt_compile.partition import partition
from accelopt_compile.records import Artifact, Workload
from accelopt_compile.signature import sign
from tests.backends.seed_cases import CASES, R, gradient
from tests.backends.seeds import BACKEND, fault, regions_of
from tests.regions.models import graph_of

PRODUCTS = ["one row times a matrix", "one row with a bias", "a row times a matrix that lies by rows"]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", CASES)
def test_a_seed_is_right_on_odd_shapes(name: str, tmp_path: Path) -> None:
    """The generated kernel passes verification for each of the function's regions."""
    function, shapes = CASES[name]
    faults = [fault(BACKEND.seed(w), w, b, tmp_path) for w, b in regions_of(function, *(R(s) for s in shapes))]
    assert [""] * max(1, len(faults)) == faults


@pytest.mark.sweep(2)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["softmax", "layer norm", "swiglu", "rotary", "mean over rows", "transpose", *PRODUCTS])
def test_a_seed_is_right_in_half_precision(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Storage in 16 bits, arithmetic in float32."""
    function, shapes = CASES[name]
    faults = [fault(BACKEND.seed(w), w, b, tmp_path) for w, b in regions_of(function, *(R(s).to(dtype) for s in shapes))]
    assert [""] * max(1, len(faults)) == faults


@pytest.mark.parametrize("name", ["softmax", "layer norm", "group norm", "transpose"])
def test_every_structural_choice_gives_a_right_kernel(name: str, tmp_path: Path) -> None:
    """What the mutation grammar offers computes the same function."""
    function, shapes = CASES[name]
    ((workload, binding),) = regions_of(function, *(R(s) for s in shapes))
    grammar = BACKEND.grammar(workload)
    found = {}
    for values in itertools.product(*grammar.values()):
        structure = dict(zip(grammar, values, strict=True))
        found[values] = fault(BACKEND.render(workload, structure), workload, binding, tmp_path)
    assert len(found) > 1
    assert dict.fromkeys(found, "") == found


@pytest.mark.parametrize(("name", "follows"), [("group norm", True), ("scaled by another row's sum", False)])
def test_what_needs_one_row_s_results_follows_that_row(name: str, follows: bool) -> None:
    """While the caches hold the row; what reads other rows' results waits for all of them."""
    function, shapes = CASES[name]
    ((workload, _),) = regions_of(function, *(R(s) for s in shapes))
    assert follows == ("nests" in BACKEND.grammar(workload))
    assert (1 if follows else 2) == BACKEND.seed(workload).text.count("parallel(n, items")
    assert 2 == BACKEND.render(workload, {"nests": "apart"} if follows else {}).text.count("parallel(n, items")


def test_tunables_do_not_change_the_result(tmp_path: Path) -> None:
    """Unrolled by 1 and 8, with prefetch and small blocks, a softmax stays right."""
    function, shapes = CASES["softmax"]
    ((workload, binding),) = regions_of(function, *(R(s) for s in shapes))
    source = BACKEND.seed(workload)
    assert "" == fault(source, workload, binding, tmp_path, tunables={"UNROLL": 1, "GRAIN": 4096, "PREFETCH": 256})
    assert "" == fault(source, workload, binding, tmp_path, tunables={"UNROLL": 8, "GRAIN": 65536, "PREFETCH": 0})


def test_a_matrix_times_itself_loops_over_each_dimension_once(tmp_path: Path) -> None:
    """Rows, columns and what is summed over are the same two loops of one tensor."""
    (region,) = partition(graph_of(lambda x: x @ x, R((9, 9))), products=Products(most=1, rows=9)).regions
    signed = sign(region)
    assert "" == fault(BACKEND.seed(signed.workload), signed.workload, signed.binding, tmp_path)


def status_of(artifact: Artifact, workload: Workload, binding: Mapping[str, int], tensors: Sequence[torch.Tensor]) -> int:
    """What the kernel says of one call on one thread."""
    kernel = BACKEND.load(artifact)
    return kernel([t.data_ptr() for t in tensors], [binding[s] for s in workload.symbols], 1)


def test_positions_outside_a_table_are_declined(tmp_path: Path) -> None:
    """A kernel that meets a bad index returns nonzero, so that the caller runs eager, which raises."""
    ((workload, binding),) = regions_of(lambda w, i: F.embedding(i, w) * 2, R(10, 16), torch.tensor([1, 2, 3]))
    artifact = BACKEND.build(BACKEND.seed(workload), BACKEND.seed(workload).defaults(), str(tmp_path))
    table, positions, out = R(10, 16), torch.tensor([1, 99, 3]), torch.empty(3, 16)
    order = [positions if s.dtype == "i64" else table for s in workload.inputs]
    assert 0 != status_of(artifact, workload, binding, [*order, out])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
def test_integers_of_all_sizes_are_read_and_compared_as_they_are(dtype: torch.dtype, tmp_path: Path) -> None:
    """All comparisons at once, over the whole range of the type, on rows that no vector divides."""

    def compared(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = (x < y, x <= y, x > y, x >= y, x == y, x != y, x.to(torch.bool))
        return sum((one.to(torch.int64) * 2**k for k, one in enumerate(found)), x.to(torch.int64) * 128)

    limits = torch.iinfo(dtype)
    values = torch.tensor([limits.min, limits.min + 1, 0, 1, limits.max // 2, limits.max - 1, limits.max], dtype=dtype)
    x, y = (values[torch.randint(0, 7, (5, 83), generator=torch.Generator().manual_seed(n))] for n in range(2))
    ((workload, binding),) = regions_of(compared, x, y)
    artifact = BACKEND.build(BACKEND.seed(workload), BACKEND.seed(workload).defaults(), str(tmp_path))
    out = torch.empty(5, 83, dtype=torch.int64)
    assert 0 == status_of(artifact, workload, binding, [x, y, out])
    assert torch.equal(compared(x, y), out) or torch.equal(compared(y, x), out)


@pytest.mark.parametrize(
    "name", ["one outlier", "first stretch apart", "far from zero", "about zero", "far from zero but one", "stretches apart"]
)
def test_moments_in_one_pass_are_exact_whatever_comes_first(name: str, tmp_path: Path) -> None:
    """Mean and variance by differences from what some elements say: one of 1e17 there put the mean off by 6e-4. Where stretches
    lie about values of their own, one of them says nothing of the others."""
    x = torch.randn(2, 50_000, generator=torch.Generator().manual_seed(4))
    if name == "one outlier":
        x = x * 1e3
        x[:, 5] = 1e17
    elif name == "first stretch apart":
        x[:, :56] *= 500
    elif name == "far from zero":
        x += 1e3
    elif name == "far from zero but one":
        x += 50
        x[:, 5] = 300
    elif name == "stretches apart":
        x += 300 * torch.randn(2, 100, generator=torch.Generator().manual_seed(14)).repeat_interleave(500, -1)
        x -= x.mean(-1, keepdim=True)
    ((workload, binding),) = regions_of(lambda x: torch.var_mean(x, -1, correction=0), x)
    source = BACKEND.render(workload, {"moments": "shifted"})
    artifact = BACKEND.build(source, source.defaults(), str(tmp_path))
    outputs = [torch.empty(2), torch.empty(2)]
    assert 0 == status_of(artifact, workload, binding, [x, *outputs])
    variance, mean = torch.var_mean(x.double(), -1, correction=0)
    deviation = variance.sqrt()
    assert float(((outputs[0] - variance) / variance).abs().max()) < 1e-5
    assert float(((outputs[1] - mean) / torch.maximum(mean.abs(), deviation / 200)).abs().max()) < 1e-5


@pytest.mark.parametrize(
    "look_up", [lambda t, i: F.embedding(i, t) * 2, lambda t, i: t[i].softmax(-1)], ids=["embedding", "index"]
)
def test_rows_of_a_table_of_any_size(look_up: Callable[..., torch.Tensor], tmp_path: Path) -> None:
    ((workload, binding),) = regions_of(look_up, R(300, 21), torch.randint(0, 300, (2, 7)))
    assert 300 in binding.values()
    assert "" == fault(BACKEND.seed(workload), workload, binding, tmp_path)


def test_a_position_found_at_run_time_passes_through_a_slice_and_a_reshape(tmp_path: Path) -> None:
    """The loss of next-token prediction: a logit is picked by a label from rows that were cut and flattened."""

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    regions = regions_of(loss, R(3, 7, 21), torch.randint(0, 21, (3, 7)))
    assert any(node.op.startswith("aten.gather") for workload, _ in regions for node in workload.nodes)
    assert [""] * len(regions) == [fault(BACKEND.seed(w), w, b, tmp_path) for w, b in regions]


def test_a_sum_over_one_hot_rows_reads_nothing(tmp_path: Path) -> None:
    """The gradient of a cross-entropy: -g where the label is inside, what 0 * g gives where g is no finite number."""

    ((workload, binding),) = regions_of(gradient, R(7, 21), torch.tensor([0, 20, 3, -100, 21, 5, 5]), R(7, 1))
    assert [] == [v for nest in schedule(Graph(workload)) for v in nest.reductions]
    assert "" == fault(BACKEND.seed(workload), workload, binding, tmp_path)


def test_an_unknown_choice_is_an_error_that_lists_the_grammar() -> None:
    """render refuses what the grammar does not offer."""
    function, shapes = CASES["swiglu"]
    ((workload, _),) = regions_of(function, *(R(s) for s in shapes))
    with pytest.raises(ValueError, match="this workload takes"):
        BACKEND.render(workload, {"keep": "everything"})
