"""C++ as a person or a model reads and writes it: the library as one line instead of 500, the tunables declared in a comment.

`shown` and `written` are inverses as far as an author can see; what is stored and built is always the whole text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources

from accelopt_backends.base import Guide
from accelopt_backends.cpp.allowed import MACRO
from accelopt_backends.cpp.expressions import sections
from accelopt_backends.cpp.screening import SIZE_LIMIT
from accelopt_compile.records import KernelSource

LIBRARY = "//@ library"
"""The line that stands for the library in an author's text."""

MOST_TUNABLES = 16
MOST_VALUES = 8
_LARGEST = 1 << 20

_DECLARATION = re.compile(r"^[ \t]*//[ \t]*TUNABLES:(.*)$", re.MULTILINE)
_EXAMPLE = '// TUNABLES: {"UNROLL": [4, 2, 8]}'


def shown(source: KernelSource, tunables: Mapping[str, int], chunks: Sequence[str] | None = None) -> str:
    """The kernel as an author reads it, with `tunables` as the declared defaults. `chunks` are the library's sections, those of
    today unless others are given."""
    chunks = chunks or library()
    text = source.text.replace(chunks[0], f"{LIBRARY}\n", 1)
    for chunk in chunks[1:]:
        text = text.replace(chunk, "", 1)
    for name in source.tunables:  # always defined when it is built, and never by this number once it is tuned
        text = re.sub(rf"^#ifndef {re.escape(name)}\n#define {re.escape(name)} \d+\n#endif\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\n{3,}", "\n\n", _DECLARATION.sub("", text)).lstrip("\n")
    if not source.tunables:
        return text
    values = {name: [tunables[name], *(v for v in all_ if v != tunables[name])] for name, all_ in sorted(source.tunables.items())}
    return f"// TUNABLES: {json.dumps(values)}\n{text}"


def written(text: str, chunks: Sequence[str] | None = None) -> KernelSource:
    """The kernel that an author's text stands for. Raises ValueError with a reason that the author can act on."""
    if len(text) > SIZE_LIMIT:
        raise ValueError(f"{len(text)} characters of source; at most {SIZE_LIMIT}")
    tunables = _declared(text)
    if len(re.findall(rf"^{LIBRARY}[ \t]*$", text, re.MULTILINE)) > 1:
        raise ValueError(f"the line {LIBRARY!r} stands in it twice; once is enough")
    whole = re.sub(rf"^{LIBRARY}[ \t]*$", lambda _: "".join(chunks or library()), text, count=1, flags=re.MULTILINE)
    return KernelSource(language="cpp", text=whole.strip() + "\n", tunables=tunables, origin="llm")


def guide(machine: Sequence[str]) -> Guide:
    """The language for authors; its texts are files beside this one."""
    facts, writing = _guide_texts()
    fences = ("cpp", "c++", "cc", "cxx", "c")
    return Guide(language="C++", fences=fences, facts=facts, writing=writing, machine=tuple(machine), counts=COUNTS)


COUNTS = ("instructions", "zmm", "ymm", "fma", "divisions", "gathers", "spills")
"""What a planner is shown of a built object."""


@lru_cache(maxsize=1)
def _guide_texts() -> tuple[str, str]:
    """`facts` and `writing`: asked for with every prompt and every answer."""
    folder = resources.files("accelopt_backends.cpp").joinpath("guide")
    facts, writing = (folder.joinpath(f"{name}.md").read_text(encoding="utf-8") for name in ("facts", "writing"))
    return facts, writing


def _declared(text: str) -> dict[str, tuple[int, ...]]:
    found = _DECLARATION.findall(text)
    if not found:
        return {}
    if len(found) > 1:
        raise ValueError(f"{len(found)} lines declare TUNABLES; write one: {_EXAMPLE}")
    try:
        data = json.loads(found[0].strip())
    except (ValueError, RecursionError) as failure:
        raise ValueError(f"TUNABLES is not JSON ({failure}); write it as {_EXAMPLE}") from failure
    if not isinstance(data, dict) or len(data) > MOST_TUNABLES:
        raise ValueError(f"TUNABLES is one JSON object with at most {MOST_TUNABLES} names, e.g. {_EXAMPLE}")
    return {name: _values(name, values) for name, values in data.items()}


def _values(name: str, values: object) -> tuple[int, ...]:
    if not MACRO.fullmatch(name):
        raise ValueError(f"the tunable {name[:40]!r}: a name has capitals, digits and _, at most 40, as it becomes a macro")
    whole = isinstance(values, list) and all(type(v) is int and 0 <= v < _LARGEST for v in values)
    if not (whole and isinstance(values, list) and 0 < len(values) <= MOST_VALUES and len(set(values)) == len(values)):
        raise ValueError(f"the tunable {name}: 1 to {MOST_VALUES} different integers from 0 to {_LARGEST - 1}, the default first")
    return tuple(values)


@lru_cache(maxsize=1)
def library() -> tuple[str, ...]:
    """The library's sections, in their order."""
    return tuple(body for _, body in sections().values())
