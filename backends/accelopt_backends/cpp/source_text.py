"""A C++ source as the compiler will see it: lines joined, comments and literals blanked, and every place traced to its line.

What could make the compiler read another text than this does (trigraphs, prefixed and raw strings, control characters) is a
fault rather than something to imitate.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

_SPLICE = re.compile(r"\\[ \t]*\n")
_SPECIAL = re.compile(
    r"//[^\n]*"
    r"|/\*.*?(?:\*/|\Z)"
    r"|(?<![\w.])\d[\w.]*(?:'[\w.]+)+"  # a number with separators
    r"|\"(?:\\.|[^\"\\\n])*\"?"
    r"|'(?:\\.|[^'\\\n])*'?",
    re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""Comments included: what hides, turns or breaks the text around it deceives whoever reads the kernel."""

_TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
_ODD = re.compile(r"[^\x20-\x7e\n\t]|[\\@$`]")
_BLANK = re.compile(r"[^\n]")

_STRINGS = (
    (re.compile(r"\bextern\s+$"), re.compile(r'"C"')),
    (re.compile(r"\b_Pragma\s*\(\s*$"), re.compile(r'"(?:GCC (?:ivdep|unroll \d+)|omp simd)"')),
    (re.compile(r"\b__builtin_nanf?\s*\(\s*$"), re.compile(r'""')),
)
"""Where a string literal may stand, and which."""


ENOUGH = 100
"""Faults after which nobody reads on."""


@dataclass(frozen=True)
class Code:
    """`text` has the joined source's length; `splices` are the places in it where lines were joined."""

    text: str
    splices: tuple[int, ...]
    faults: tuple[tuple[int, str, str], ...]

    def line(self, position: int) -> int:
        """The line of the source, from 1, that holds this place."""
        return 1 + self.text.count("\n", 0, position) + bisect.bisect_right(self.splices, position)


def read(source: str) -> Code:
    """The code of a source, and what in it cannot be read safely as (place, reason, hint)."""
    source = source.replace("\r\n", "\n")
    pieces = _SPLICE.split(source)
    text = "".join(pieces)
    splices, at = [], 0
    for piece in pieces[:-1]:
        at += len(piece)
        splices.append(at)
    faults = [(m.start(), "a control character", "plain ASCII outside comments") for m in _CONTROL.finditer(text)]
    faults += [(m.start(), "a trigraph", "write the character itself") for m in _TRIGRAPH.finditer(text)]
    kept, last = [], 0
    for match in _SPECIAL.finditer(text):
        start, found = match.span()[0], match[0]
        if found[0] not in "\"'/":
            continue
        fault = _literal_fault(text, start, found) if found[0] in "\"'" else _comment_fault(found)
        if fault:
            faults.append((start, *fault))
            if len(faults) > ENOUGH:
                break  # refused in any case
        kept += [text[last:start], found if found == '"C"' else _BLANK.sub(" ", found)]
        last = match.end()
    kept.append(text[last:])
    code = "".join(kept)
    hint = "plain ASCII outside comments, no universal character names"
    faults += [(m.start(), f"the character {m[0]!r}", hint) for m in _ODD.finditer(code)]
    return Code(code, tuple(splices), tuple(faults))


def _comment_fault(found: str) -> tuple[str, str] | None:
    return ("a comment that never ends", "close it") if found.startswith("/*") and not found.endswith("*/") else None


def _literal_fault(text: str, start: int, found: str) -> tuple[str, str] | None:
    if start and (text[start - 1].isalnum() or text[start - 1] == "_"):
        return "a literal with a prefix", 'no raw, wide or Unicode literals; write `extern "C"` with a space'
    if len(found) < 2 or found[-1] != found[0]:
        return "a literal that never ends", "close it"
    if found[0] == "'":
        return None
    before = text[max(0, start - 80) : start]
    if any(where.search(before) and what.fullmatch(found) for where, what in _STRINGS):
        return None
    return "a string", 'a kernel needs none but `extern "C"` and _Pragma("GCC unroll N")'
