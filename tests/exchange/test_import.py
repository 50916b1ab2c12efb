"""Definitions of FlashInfer-Bench become workloads: traced behind walls, whole where one region holds them, else cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accelopt_compile.errors import InvalidRecord, UsageError
from accelopt_compile.exchange.importing import Imported, Untraceable, import_definition
from accelopt_compile.exchange.schema import definition_from, instance_from, read_definition, read_instances
from accelopt_compile.sites import from_document

DEFINITIONS = Path(__file__).parent / "definitions"


def imported(name: str) -> Imported:
    definition = read_definition(DEFINITIONS / f"{name}.json")
    return import_definition(definition, read_instances(DEFINITIONS / f"{name}.jsonl", definition))


def small(reference: str, **sizes: int) -> Imported:
    """A definition over x of shape (n, m), traced at these sizes."""
    tensor = {"shape": ["n", "m"], "dtype": "float32"}
    definition = definition_from(
        {
            "name": "small",
            "op_type": "test",
            "axes": {"n": {"type": "var"}, "m": {"type": "var"}},
            "inputs": {"x": tensor},
            "outputs": {"y": tensor},
            "reference": f"import torch\n{reference}",
        }
    )
    instance = {"axes": {"n": 4, "m": 6} | sizes, "inputs": {"x": {"type": "random"}}, "uuid": "u"}
    return import_definition(definition, [instance_from(instance, definition)])


def test_varying_axes_are_symbols_and_workloads_bindings() -> None:
    """One trace serves every workload of other sizes; another scalar, and a size of 1, are traced on their own."""
    captures = imported("rmsnorm_h128").captures
    assert [["rmsnorm_h128-0", "rmsnorm_h128-1"], ["rmsnorm_h128-2"], ["rmsnorm_h128-3"]] == [
        [one.uuid for one in capture.instances] for capture in captures
    ]
    link = captures[0].whole
    assert link is not None
    assert (("s0",), ("hidden_states", "weight"), ("output",)) == (link.symbols, link.inputs, link.outputs)
    assert ("s0", 128) == link.workload.inputs[0].shape
    assert {"eps": 1e-05} == link.scalars


def test_a_product_is_held_whole_although_a_model_would_be_cut_there() -> None:
    """A definition is a kernel's whole task: its matrix product is part of the region."""
    (capture,) = imported("gemm_n64_k128").captures
    assert capture.whole is not None
    assert "aten.mm.default" in [node.op for node in capture.whole.workload.nodes]


def test_attention_with_its_parts() -> None:
    """Grouped-query decode is one workload over three inputs; the regions that a model's partition gives come as its parts."""
    found = imported("gqa_decode_h8_kv2_d32")
    link = found.captures[0].whole
    assert link is not None
    assert {"q", "k", "v"} == set(link.inputs)
    assert {"output", "lse"} == set(link.outputs)
    (site,) = (from_document(found.document()) or ([], {}))[0]
    assert len(found.captures[0].parts) == len(site.parts)


def test_equal_sizes_of_different_axes_stay_apart() -> None:
    """Two axes of size 3 in a workload are still two symbols."""
    (capture,) = imported("residual_rmsnorm_two_results").captures
    assert capture.whole is not None
    assert ("s0", "s1") == capture.whole.symbols


def test_what_depends_on_data_is_cut_with_the_reason() -> None:
    """A reference that reads lengths from a tensor is no region."""
    (capture,) = imported("paged_sum").captures
    assert capture.whole is None
    assert "a size that only the run knows" in capture.cut


def test_a_branch_on_a_size_is_traced_for_each_side() -> None:
    """A workload beyond the guard gets a trace of its own."""
    text = "def run(x):\n    return x * 2 if x.shape[0] > 8 else x * 3\n"
    below, above = small(text, n=5), small(text, n=50)
    assert below.captures[0].whole is not None and above.captures[0].whole is not None
    assert below.captures[0].whole.workload != above.captures[0].whole.workload


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    open('/tmp/accelopt_escaped', 'w')", "cannot be traced"),
        ("    while True: pass", "no answer within the time limit"),
        ("    import os; os._exit(3)", "cannot be traced"),
    ],
)
def test_a_hostile_reference_costs_a_child(body: str, said: str) -> None:
    """It is refused with a reason; nothing of it happens here."""
    definition = json.loads((DEFINITIONS / "softmax_v.json").read_text())
    definition["reference"] = f"import torch\ndef run(x):\n{body}\n"
    found = definition_from(definition)
    instance = instance_from({"axes": {"rows": 4}, "inputs": {"logits": {"type": "random"}}, "uuid": "u"}, found)
    with pytest.raises(Untraceable, match=said):
        import_definition(found, [instance], timeout_s=8.0)
    assert not Path("/tmp/accelopt_escaped").exists()


@pytest.mark.parametrize(
    "at_import", ["open('/tmp/accelopt_escaped', 'w')", "import socket; socket.socket()", "import os; os.fork()"]
)
def test_code_at_import_meets_the_walls(at_import: str) -> None:
    """What a reference does outside of `run` fails behind the walls."""
    with pytest.raises(Untraceable, match=r"Operation not permitted|PermissionError"):
        small(f"{at_import}\ndef run(x):\n    return x\n")
    assert not Path("/tmp/accelopt_escaped").exists()


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("said['workload']['inputs'][0][0] = 'i64'", "x is f32"),
        ("said['workload']['nodes'][0][0] = 'aten.from_file.default'", "may only compute"),
        ("said['inputs'] = [7]", "not a region"),
        ("said['symbols'] = ['__import__', 'x']", "not arithmetic"),
    ],
)
def test_a_child_that_lies_is_found_out(lie: str, said: str) -> None:
    """A reference can make its process say anything; shapes, types, operators and names are checked on arrival."""
    text = (
        "import accelopt_compile.evaluate.sandbox.tracer as t\n"
        "told = t._told\n"
        f"def lying(*a):\n    said = told(*a)\n    {lie}\n    return said\n"
        "t._told = lying\n"
        "def run(x):\n    return x * 2\n"
    )
    with pytest.raises(InvalidRecord, match=said):
        small(text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reference": "x = 1"}, "no function `run`"),
        ({"reference": "def"}, "no Python"),
        ({"inputs": {"a b": {"shape": ["rows"], "dtype": "float32"}}}, "name of an argument"),
        ({"inputs": {"a": {"shape": ["rows"], "dtype": "float8_e4m3fn"}}}, "float8_e4m3fn"),
        ({"inputs": {"a": {"shape": ["nowhere"], "dtype": "float32"}}}, "no list of axes"),
        ({"axes": {"rows": {"type": "const", "value": -1}}}, "not a size"),
        ({"name": 3}, "name is '3'"),
        ({"inputs": 7}, "not a definition"),
    ],
)
def test_a_definition_that_is_none_names_the_field(change: dict[str, Any], said: str) -> None:
    """What is wrong with a definition is said with the field's name."""
    data = json.loads((DEFINITIONS / "softmax_v.json").read_text()) | change
    with pytest.raises(InvalidRecord, match=said):
        definition_from(data)


def test_workloads_without_a_value_for_an_axis_are_refused(tmp_path: Path) -> None:
    """The file, the line, and the axis are named."""
    definition = read_definition(DEFINITIONS / "softmax_v.json")
    path = tmp_path / "w.jsonl"
    path.write_text(json.dumps({"axes": {}, "inputs": {}, "uuid": "u"}))
    with pytest.raises(UsageError, match="line 1: workload u of softmax_v gives no value for rows"):
        read_instances(path, definition)
