"""What a reply holds: a block of code, or a JSON object. Pure; nothing of a reply is ever run here.

Which block: of those with a wanted language (of those without any language where none has a wanted one), the last that
is at least half as long as the longest. Models show a snippet and then the whole kernel, or the kernel and then a
snippet of its use, or a whole kernel and then its corrected form; this rule takes the right one of each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

CPP = ("cpp", "c++", "c", "cc", "cxx")
_NESTING = ("markdown", "md")
_MOST_NESTED = 3
"""Blocks of Markdown inside each other that are looked into."""

_FENCE = re.compile(r"^[ \t]*(`{3,}(?!`)|~{3,}(?!~))([^`\n]*)$")
_BRACES = re.compile(r'\\.|["{}]', re.DOTALL)
_MOST_OBJECTS = 1000


@dataclass(frozen=True, kw_only=True)
class Found:
    """A block's text, ended by one newline, and the language its fence names, in lower case."""

    text: str
    language: str


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Why a reply holds no usable block or object: a sentence that a model can be told."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class _Block:
    language: str
    lines: tuple[str, ...]
    closed: bool

    @property
    def size(self) -> int:
        return sum(len(line.strip()) for line in self.lines)


def code_block(text: str, fences: Sequence[str] = CPP) -> Found | Missing:
    """The code in a reply, or why there is none. A block that was cut off is no code."""
    blocks = list(_blocks(_after_thinking(text).replace("\r\n", "\n").replace("\r", "\n").split("\n"), fences))
    wanted = [b for b in blocks if b.language in fences] or [b for b in blocks if not b.language]
    wanted = [b for b in wanted if b.size]
    name = fences[0]
    if not wanted and blocks and any(b.size for b in blocks):
        others = sorted({b.language for b in blocks if b.language})
        return Missing(reason=f"the code is in a block of {', '.join(others)}, not of {name}; begin the block with ```{name}")
    if not wanted:
        return Missing(reason=f"the reply has no block of code; put the whole source into one block that begins with ```{name}")
    if not wanted[-1].closed:
        return Missing(reason="the block of code was cut off before its closing fence")
    longest = max(b.size for b in wanted)
    block = [b for b in wanted if b.closed and 2 * b.size >= longest]
    if not block:
        return Missing(reason="the longest block of code was cut off before its closing fence")
    return Found(text="\n".join(block[-1].lines).strip("\n") + "\n", language=block[-1].language)


def json_object(text: str) -> dict[str, Any] | Missing:
    """The first JSON object in a reply, in a block or bare, whatever stands around it. One that was cut off is no object,
    and neither is a whole object inside it."""
    text = _after_thinking(text)
    decoder = json.JSONDecoder(strict=False, parse_constant=_no_constant)
    at, broken = text.find("{"), ""
    for _ in range(_MOST_OBJECTS):
        if at < 0:
            break
        try:
            return _object(decoder, text, at)
        except (ValueError, RecursionError) as failure:
            reason = str(failure)
        if re.match(r'\{\s*(?:"|\Z)', text[at : at + 1000]) is None:
            at = text.find("{", at + 1)  # prose, or a set in mathematics
            continue
        end = _end_of_object(text, at)
        if end < 0:
            return Missing(reason="the JSON object was cut off before its closing brace")
        broken = broken or reason
        at = text.find("{", end)
    return Missing(reason=f"the JSON is not valid: {broken}" if broken else "the reply has no JSON object")


def _after_thinking(text: str) -> str:
    """Without the reasoning that some servers leave in the answer: what is in there was thought better of."""
    return text.rpartition("</think>")[2]


def _blocks(lines: Sequence[str], fences: Sequence[str], depth: int = 0) -> Iterator[_Block]:
    """Fenced blocks, outermost; those inside a block of Markdown instead of it. A fence that is closed by no other goes on
    to the end; one that names a wanted language inside another block begins anew, since no program has such a line."""
    fence, language, held = "", "", list[str]()
    for line in lines:
        found = _FENCE.match(line)
        mark, info = (found[1], _language(found[2])) if found else ("", "")
        if fence and mark and not info and mark[0] == fence[0] and len(mark) >= len(fence):
            yield from _unnested(_Block(language=language, lines=tuple(held), closed=True), fences, depth)
            fence = ""
        elif mark and (not fence or (info in fences and len(mark) >= len(fence))):
            if fence and language not in _NESTING:
                yield _Block(language=language, lines=tuple(held), closed=False)
            fence, language, held = mark, info, []
        elif fence:
            held.append(line)
    if fence and any(line.strip() for line in held):
        yield _Block(language=language, lines=tuple(held), closed=False)


def _unnested(block: _Block, fences: Sequence[str], depth: int) -> Iterator[_Block]:
    looked_into = block.language in _NESTING and depth < _MOST_NESTED
    inner = list(_blocks(block.lines, fences, depth + 1)) if looked_into else []
    yield from inner or [block]


def _language(info: str) -> str:
    """The first word of a fence's info, without the decoration of Pandoc ("{.cpp}")."""
    words = info.strip().lower().split()
    return words[0].strip("{}.,:") if words else ""


def _object(decoder: json.JSONDecoder, text: str, at: int) -> dict[str, Any]:
    value, _ = decoder.raw_decode(text, at)
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _end_of_object(text: str, at: int) -> int:
    """Where the braces that open at `at` are closed, braces in strings not counted; -1 where they are not."""
    depth, quoted = 0, False
    for found in _BRACES.finditer(text, at):
        letter = found[0]
        if letter == '"':
            quoted = not quoted
        elif letter in "{}" and not quoted:
            depth += 1 if letter == "{" else -1
            if depth == 0:
                return found.end()
    return -1
