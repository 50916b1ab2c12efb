"""Triton as a person or a model reads and writes it: the whole file, the numbers in force first in their tuples.

`shown` and `written` are inverses as far as an author can see: tunables are the keyword-only parameters of the host function.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources

from accelopt_backends.base import Guide
from accelopt_backends.triton.arithmetic import SourceError
from accelopt_backends.triton.extent import SIZE_LIMIT
from accelopt_backends.triton.launches import MOST_TUNABLES, TUNABLE
from accelopt_backends.triton.source import HOST, parse
from accelopt_compile.records import KernelSource

FENCES = ("python", "triton", "py")


def shown(source: KernelSource, tunables: Mapping[str, int]) -> str:
    """The kernel as an author reads it, with `tunables` as the defaults. Raises SourceError for a text that is no kernel."""
    parse(source.text)
    host = next(n for n in ast.parse(source.text).body if isinstance(n, ast.FunctionDef) and n.name == HOST)
    lines = source.text.encode().splitlines(keepends=True)
    pairs = zip(host.args.kwonlyargs, host.args.kw_defaults, strict=True)
    for arg, default in sorted(pairs, key=lambda pair: (pair[0].lineno, pair[0].col_offset), reverse=True):
        if isinstance(default, ast.Tuple) and arg.arg in tunables:
            first, all_ = tunables[arg.arg], source.tunables[arg.arg]
            values = ", ".join(str(v) for v in (first, *(v for v in all_ if v != first)))
            _replace(lines, default, f"({values},)" if "," not in values else f"({values})")
    return b"".join(lines).decode()


def written(text: str) -> KernelSource:
    """The kernel that an author's text stands for. Raises ValueError with a reason that the author can act on."""
    if len(text) > SIZE_LIMIT:
        raise ValueError(f"{len(text)} characters of source; at most {SIZE_LIMIT}")
    whole = text.replace("\r\n", "\n").strip() + "\n"
    try:
        tunables = parse(whole).tunables
    except SourceError as failure:
        raise ValueError(str(failure)) from failure
    if len(tunables) > MOST_TUNABLES:
        raise ValueError(f"{len(tunables)} tunables; at most {MOST_TUNABLES}")
    for name in tunables:
        if not TUNABLE.fullmatch(name):
            raise ValueError(f"the tunable {name[:40]!a}: a name has letters, digits and _, a capital first, at most 40")
    return KernelSource(language="triton", text=whole, tunables=dict(tunables), origin="llm")


def guide(machine: Sequence[str]) -> Guide:
    """The language for authors; its texts are files beside this one."""
    facts, writing = _guide_texts()
    return Guide(language="Triton", fences=FENCES, facts=facts, writing=writing, machine=tuple(machine), counts=COUNTS)


COUNTS = (
    "registers", "spill_bytes", "shared_bytes", "threads", "instructions", "tensor", "async_copies", "global_loads",
    "vector_loads", "global_stores", "vector_stores", "shared_loads", "shared_stores", "special", "shuffles", "barriers",
)  # fmt: skip
"""What a planner is shown of a built kernel (features.py)."""


@lru_cache(maxsize=1)
def _guide_texts() -> tuple[str, str]:
    """`facts` and `writing`: asked for with every prompt and every answer."""
    folder = resources.files("accelopt_backends.triton").joinpath("guide")
    facts, writing = (folder.joinpath(f"{name}.md").read_text(encoding="utf-8") for name in ("facts", "writing"))
    return facts, writing


def _replace(lines: list[bytes], node: ast.expr, text: str) -> None:
    """Puts `text` where `node` stands: columns of the syntax tree count bytes."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    lines[first : last + 1] = [before + text.encode() + after]
