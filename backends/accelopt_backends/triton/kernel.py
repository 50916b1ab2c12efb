"""A workload's seed kernel in Triton: values, nests, launches. The generic generator."""

from __future__ import annotations

from collections.abc import Mapping

from accelopt_backends.loops.affine import Unsupported
from accelopt_backends.loops.heading import heading
from accelopt_backends.loops.nests import Nest, dependencies, schedule
from accelopt_backends.loops.values import Graph, Val
from accelopt_backends.triton.columns import ColumnKernel, groups
from accelopt_backends.triton.expressions import STORED, library
from accelopt_backends.triton.rows import RowKernel
from accelopt_backends.triton.source import parse
from accelopt_backends.triton.tiles import KernelText
from accelopt_compile.records import KernelSource, Workload

GRAMMAR: dict[str, tuple[str, ...]] = {
    "rows": ("whole", "looped", "online"),
    "reduce": ("auto", "together", "split"),
}

MOST_TILE = 32768
"""Elements of a tile at most: beyond, registers spill whatever the warps."""


def render(workload: Workload, structure: Mapping[str, str]) -> KernelSource:
    """The kernel of a workload with these structural choices. Raises Unsupported."""
    graph = Graph(workload, moments="two_pass")
    nests = schedule(graph, structure.get("reduce", "auto"))
    launches: list[KernelText] = []
    done: frozenset[Val] = frozenset()
    for number, nest in enumerate(nests):
        suffix = "" if not launches else f"_{number + 1}"
        exports = _exports(nests, number)
        if nest.reductions or nest.stores:
            row = RowKernel(graph, nest, f"rows{suffix}", done, exports, rows=structure.get("rows", "whole"))
            launches.append(row.text())
        done = done | set(nest.reductions)
        for place, group in enumerate(groups(nest)):
            column = ColumnKernel(graph, nest, group, f"columns_{number + 1}{'abcdefgh'[place : place + 1]}", done)
            launches += column.texts()
        done = done | set(nest.accumulations)
    text = _text(workload, launches)
    return KernelSource(
        language="triton", text=text, tunables=dict(parse(text).tunables), structure=dict(structure), origin="seed"
    )


def grammar(workload: Workload) -> Mapping[str, tuple[str, ...]]:
    """Structural choices that change this workload's text, default first."""
    chosen = {}
    for name, values in GRAMMAR.items():
        texts = {text: value for value in reversed(values) if (text := _rendered(workload, {name: value}))}
        if len(texts) > 1:
            chosen[name] = tuple(value for value in values if value in texts.values())
    return chosen


def _rendered(workload: Workload, structure: Mapping[str, str]) -> str:
    """The text with these choices; "" where one of them cannot be had. The default's reason is raised."""
    try:
        return render(workload, structure).text
    except Unsupported:
        if all(GRAMMAR[name][0] == value for name, value in structure.items()):
            raise
        return ""


def valid(source: KernelSource, tunables: Mapping[str, int]) -> bool:
    """Whether no launch has a tile that cannot be held, or fewer elements than threads by far."""
    for name, block in tunables.items():
        if name.startswith("BLOCK"):
            rows = tunables.get("ROWS" + name.removeprefix("BLOCK"), 1)
            if block * rows > MOST_TILE:
                return False
    return True


def _exports(nests: list[Nest], number: int) -> set[Val]:
    """Row reductions of a nest that other launches read: later nests, and its own reductions across rows."""
    later = [root for nest in nests[number + 1 :] for root in [*nest.reductions, *nest.roots]]
    needed = {d for root in [*later, *nests[number].accumulations] for d in dependencies(root)}
    return needed & set(nests[number].reductions)


# ---------------------------------------------------------------- text


def _text(workload: Workload, launches: list[KernelText]) -> str:
    functions = "\n\n".join(_function(workload, launch) for launch in launches)
    return "\n".join(
        [
            *heading(workload, "#"),
            "import triton",
            "import triton.language as tl",
            library(functions),
            "",
            functions,
            "",
            "",
            *_host(workload, launches),
            "",
        ]
    )


def _parameters(workload: Workload, launch: KernelText) -> list[str]:
    """What a device function takes, in the host's order."""
    tensors = [f"in{k}" for k in range(len(workload.inputs))] + [f"out{k}" for k in range(len(workload.output_specs))]
    memory = sorted(u for u in launch.used | {k[0] for k in launch.kept} if u.startswith(("kept", "part")) and u[4:].isdigit())
    return [*(t for t in tensors if t in launch.used), *memory, *(s for s in workload.symbols if s in launch.used)]


def _function(workload: Workload, launch: KernelText) -> str:
    takes = ", ".join([*_parameters(workload, launch), *(f"{name}: tl.constexpr" for name in launch.constants)])
    body = "\n".join("    " + line for line in launch.lines)
    return f'@triton.jit\ndef {launch.name}({takes}):\n    """{launch.comment}."""\n{body}'


def _host(workload: Workload, launches: list[KernelText]) -> list[str]:
    tensors = [f'in{k}: "*{STORED[s.dtype]}"' for k, s in enumerate(workload.inputs)]
    tensors += [f'out{k}: "*{STORED[s.dtype]}"' for k, s in enumerate(workload.output_specs)]
    symbols = [f'{s}: "i64"' for s in workload.symbols]
    tunables = {name: values for launch in launches for name, values in launch.tunables.items()}
    chosen = [f"{name}={values if len(values) > 1 else f'({values[0]},)'}" for name, values in tunables.items()]
    lines = [f"def accelopt_kernel({', '.join([*tensors, *symbols, *(['*', *chosen] if chosen else [])])}):"]
    for launch in launches:
        lines += [f'    {name} = scratch("{kind}", {elements})' for name, kind, elements in launch.kept]
        given = ", ".join(
            [
                *_parameters(workload, launch),
                *(f"{name}={value}" for name, value in launch.constants.items()),
                *(f"{name}={value}" for name, value in launch.options.items()),
            ]
        )
        lines.append(f"    {launch.name}[({launch.grid},)]({given})")
    return lines
