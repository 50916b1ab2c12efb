"""A workload's seed kernel: values, nests, text. The generic generator of the C++ backend."""

from __future__ import annotations

from collections.abc import Mapping

from accelopt_backends.cpp.dry_runs import Choices, write_nest
from accelopt_backends.cpp.expressions import STORED, closure, prelude
from accelopt_backends.cpp.frame import join
from accelopt_backends.cpp.nest_text import NestText
from accelopt_backends.cpp.toolchain import cpu_vendor, divides_beside_the_rest
from accelopt_backends.loops.affine import Unsupported
from accelopt_backends.loops.heading import heading
from accelopt_backends.loops.nests import Nest, dependencies, schedule
from accelopt_backends.loops.order import along_memory
from accelopt_backends.loops.steps import stepped
from accelopt_backends.loops.values import Graph, Val
from accelopt_compile.records import KernelSource, Workload

AHEAD = (0, 256, 1024) if cpu_vendor() == "AuthenticAMD" else (256, 0, 1024)
"""Lines asked for before they are written. ReLU gains 1.1x by it on an Intel Xeon and loses 1.15x on Zen 4, where 35 of the 67
winners of the region suite ask for none, though their searches began with 256."""

TUNABLES: dict[str, tuple[int, ...]] = {
    "UNROLL": (4, 2, 1, 8),
    "BLOCK": (8192, 2048, 32768),
    "GRAIN": (16384, 4096, 65536),
    "TILE": (128, 64, 32, 256),
    "PREFETCH": (0, 256, 1024, 4096),
    "AHEAD": AHEAD,
    "STREAM_MB": (4, 32),
}
STREAMED_PREFETCH = (1024, 4096, 256, 0)
"""For weights, of which each is read once: 33 against 16 GB/s with two threads, from beyond the caches."""
_MARK = {"PREFETCH": "fetch(b,", "AHEAD": "ahead<", "STREAM_MB": "STREAM_BYTES"}
GRAMMAR: dict[str, tuple[str, ...]] = {
    "moments": ("shifted", "two_pass"),
    "keep": ("heavy", "none", "all"),
    "stores": ("cached", "streamed"),
    "loads": ("tiled", "strided"),
    "nests": ("together", "apart"),
}


def render(workload: Workload, structure: Mapping[str, str]) -> KernelSource:
    """The kernel of a workload with these structural choices. Raises Unsupported."""
    graph = Graph(workload, moments=structure.get("moments", "shifted"), products="sums")
    nests = schedule(graph)
    for nest in nests:
        along_memory(graph, nest)
    choices = Choices(**{name: structure[name] for name in ("keep", "stores", "loads", "nests") if name in structure})
    done: dict[Val, str] = {}
    texts: list[NestText] = []
    for number, nest in enumerate(nests):
        texts.append(write_nest(graph, nest, number, choices, done, _exports(nests, number)))
        done.update(dict.fromkeys(nest.reductions, "kept"))
        done.update(dict.fromkeys(nest.accumulations, "red"))
    body = join(texts, together=choices.nests == "together")
    sections = {section for text in texts for section in text.w.sections}
    used = _used_tunables("\n".join(body))
    if graph.summed and "PREFETCH" in used:
        used["PREFETCH"] = STREAMED_PREFETCH
    lines = [*heading(workload, "//"), *_tunable_lines(used), *_arithmetic(sections, graph), prelude(sections), ""]
    text = "\n".join([*lines, *_entry(workload, body)]) + "\n"
    return KernelSource(language="cpp", text=text, tunables=used, structure=dict(structure), origin="seed")


ROUGH = frozenset({"exp", "sigmoid", "tanh", "erf", "div"})
"""Operators that are computed less exactly where all results are stored in 16 bits."""


def _arithmetic(sections: set[str], graph: Graph) -> list[str]:
    """What the prelude's functions are told of results and of this processor. It stands in the text, as all that was proven."""
    wanted = closure(sections)
    steps = any(val.kind == "point" and val.data in ROUGH for val in stepped(graph))  # floor(exp(0)) is 1
    half = {"exp", "ratio"} & wanted and half_results(graph.workload) and not steps
    fast = "ratio" in wanted and divides_beside_the_rest()
    return [f"#define {name} 1" for name, so in (("HALF_RESULTS", half), ("FAST_DIVISION", fast)) if so]


def half_results(workload: Workload) -> bool:
    """Whether everything that is not an integer leaves the kernel in 16 bits."""
    floats = [spec.dtype for spec in workload.output_specs if spec.dtype in ("f64", "f32", "bf16", "f16")]
    return bool(floats) and all(dtype in ("bf16", "f16") for dtype in floats)


def grammar(workload: Workload) -> Mapping[str, tuple[str, ...]]:
    """Structural choices that change this workload's text, default first."""
    default = render(workload, {})
    chosen = {}
    for name, values in GRAMMAR.items():
        texts = {default.text}
        kept = [values[0]]
        for value in values[1:]:
            text = render(workload, {name: value}).text
            if text not in texts:
                texts.add(text)
                kept.append(value)
        if len(kept) > 1:
            chosen[name] = tuple(kept)
    return chosen


def _exports(nests: list[Nest], number: int) -> set[Val]:
    """Results of a nest that later nests read."""
    later = nests[number + 1 :]
    needed = {d for nest in later for root in [*nest.reductions, *nest.roots] for d in dependencies(root)}
    return needed & {*nests[number].reductions, *nests[number].accumulations}


def _used_tunables(body: str) -> dict[str, tuple[int, ...]]:
    return {name: values for name, values in TUNABLES.items() if _MARK.get(name, name) in body}


def _tunable_lines(used: Mapping[str, tuple[int, ...]]) -> list[str]:
    return [f"#ifndef {name}\n#define {name} {values[0]}\n#endif" for name, values in used.items()]


def _entry(workload: Workload, body: list[str]) -> list[str]:
    out = ['extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {']
    for k, s in enumerate(workload.inputs):
        if s.dtype not in STORED:
            raise Unsupported(f"{s.dtype} inputs")
        out.append(f"  const {STORED[s.dtype]}* const in{k} = (const {STORED[s.dtype]}*)tensors[{k}];")
    for k, s in enumerate(workload.output_specs):
        if s.dtype not in STORED:
            raise Unsupported(f"{s.dtype} outputs")
        out.append(f"  {STORED[s.dtype]}* const out{k} = ({STORED[s.dtype]}*)tensors[{len(workload.inputs) + k}];")
    out += [f"  const int64_t {name} = sizes[{k}];" for k, name in enumerate(workload.symbols)]
    out.append("  int bad = 0;")
    out += ["  " + line for line in body]
    return [*out, "  return bad;", "}"]
