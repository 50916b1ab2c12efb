"""How much a C++ source asks of the compiler: refused before it is built, because g++ recurses where text nests.

Each limit is far above what kernels need and below what costs a compiler seconds. Measured with g++ 12 at -O3: 100 000 brackets
in each other 32 s, 20 000 terms in one expression 3 s and 60 000 more than 40 s, 1000 `?:` in one 1 s and 20 000 more than 40 s,
20 000 `if` before one statement 14 s, macros that double 15 times more than 40 s. What is held against the limits is the text
after its macros: a short one can hide a long expression.

Not covered: templates and constexpr functions that compute (the compiler's own limits, and the builder's deadline, end those).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from accelopt_backends.cpp.source_text import Code

LINE_LIMIT = 16 * 1024
"""Characters in a line, after lines that end in a backslash are joined."""
DEPTH_LIMIT = 200
"""Brackets in each other, of any kinds: ( [ { and the < of templates that open one inside the other."""
CHAIN_LIMIT = 1000
"""Operators in one statement; the commas of a table, and the signs of its numbers, are none."""
BRANCH_LIMIT = 500
"""`if`, `else`, `for`, `while`, `do` and `switch` in each other, with braces or without."""
EXPANSION_LIMIT = 200_000
"""Tokens of the source after its macros, those in between counted."""

Found = tuple[int, str, str]
Token = tuple[str, int]
"""A token, and the place in the code where it, or the macro that brought it, stands."""
Painted = tuple[str, int, frozenset[str]]
"""A token with the macros that it came from, which do not replace it again."""

_NUMBER = r"\.?\d(?:[eEpP][+-]|[\w.'])*"
_TOKEN = re.compile(rf"{_NUMBER}|[A-Za-z_]\w*|->\*?|<<=?|>>=?|[-+*/%&|^=!<>]=|&&|\|\||\+\+|--|::|\S")
_DEFINE = re.compile(r"#\s*define\s+([A-Za-z_]\w*)(\(([^()]*)\))?(.*)", re.DOTALL)
_WITH_TOKENS = re.compile(r"\s*#\s*(?:if|elif|pragma)\b")
_OPERATOR = re.compile(r"[-+*/%&|^=!<>?~.:]{1,3}|sizeof|alignof|noexcept")
_BRANCHES = frozenset(("if", "else", "for", "while", "do", "switch"))
_SPLIT = "write it as several statements, or as a loop"


@dataclass(frozen=True)
class Macro:
    """One definition. `names` is None for a macro without brackets."""

    names: tuple[str, ...] | None
    body: tuple[str, ...]


class _TooMuch(Exception):
    """The macros expand to more than the limit; `place` is where."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place


def excesses(code: Code) -> Iterator[Found]:
    """What is longer or deeper than the limits, as (place, reason, hint); the first of each kind."""
    yield from _long_lines(code.text)
    tokens, macros = _tokens(code.text)
    if deep := list(_deep(tokens)):  # what follows may then take for granted that nesting ends
        yield from deep
        return
    if macros:
        try:
            tokens = _Expander(macros).all(tokens)
        except _TooMuch as excess:
            hint = f"at most {EXPANSION_LIMIT}: macros that use each other several times multiply; write a function"
            yield excess.place, "macros that expand to too many tokens", hint
            return
        yield from _deep(tokens)
    yield from _chains(tokens)


def _long_lines(text: str) -> Iterator[Found]:
    start = 0
    for line in text.split("\n"):
        if len(line) > LINE_LIMIT:
            yield start, f"a line of {len(line)} characters", f"at most {LINE_LIMIT}"
            return
        start += len(line) + 1


# ---------------------------------------------------------------- tokens and macros


def _tokens(text: str) -> tuple[list[Token], Mapping[str, Sequence[Macro]]]:
    """The tokens outside definitions (a directive ends as a statement does), and every definition of each macro: which of
    them holds is not decided here, so all are taken to."""
    tokens: list[Token] = []
    macros: dict[str, list[Macro]] = defaultdict(list)
    start = 0
    for line in text.split("\n"):
        directive = line.lstrip().startswith("#")
        define = _DEFINE.match(line.lstrip()) if directive else None
        if define is not None:
            names = None if define[2] is None else tuple(name.strip() for name in define[3].split(",") if name.strip())
            macros[define[1]].append(Macro(names, tuple(_TOKEN.findall(define[4]))))
        elif not directive or _WITH_TOKENS.match(line):
            tokens += [(m[0], start + m.start()) for m in _TOKEN.finditer(line)]
            if directive:
                tokens.append((";", start))
        start += len(line) + 1
    return tokens, macros


class _Expander:
    """Replaces macros as a preprocessor does, with a set of names beside each token that it came from. Counts its steps."""

    def __init__(self, macros: Mapping[str, Sequence[Macro]]) -> None:
        self._macros = macros
        self._steps = 0

    def all(self, tokens: Sequence[Token]) -> list[Token]:
        """The tokens after expansion. Raises _TooMuch."""
        return self._expanded([(text, place, frozenset()) for text, place in tokens])

    def _expanded(self, tokens: Sequence[Painted]) -> list[Token]:
        pending, done = list(reversed(tokens)), list[Token]()
        while pending:
            text, place, hidden = pending.pop()
            self._steps += 1
            if self._steps > EXPANSION_LIMIT:
                raise _TooMuch(place)
            if text not in self._macros or text in hidden:  # nearly all
                done.append((text, place))
                continue
            alternatives = self._macros[text]
            arguments = self._arguments(pending) if any(m.names is not None for m in alternatives) else None
            brought = [self._body(m, arguments, place, hidden | {text}) for m in alternatives if m.names is None or arguments]
            if not brought:
                done.append((text, place))
            for body in reversed(brought):
                self._steps += len(body)
                if self._steps > EXPANSION_LIMIT:
                    raise _TooMuch(place)
                pending += reversed(body)
        return done

    def _arguments(self, pending: list[Painted]) -> list[list[Painted]] | None:
        """The arguments of a call that begins here, taken off; None (and nothing taken) where none does."""
        if not pending or pending[-1][0] != "(":
            return None
        depth = 0
        found: list[list[Painted]] = [[]]
        for index in range(len(pending) - 1, -1, -1):
            token = pending[index]
            depth += {"(": 1, ")": -1}.get(token[0], 0)
            self._steps += 1
            if depth == 0:
                del pending[index:]
                return found
            if token[0] == "," and depth == 1:
                found.append([])
            elif not (token[0] == "(" and depth == 1 and not found[0] and len(found) == 1 and index == len(pending) - 1):
                found[-1].append(token)
        return None

    def _body(self, macro: Macro, arguments: list[list[Painted]] | None, place: int, hidden: frozenset[str]) -> list[Painted]:
        given: dict[str, list[Token]] = {}
        if macro.names is not None and arguments is not None:
            for index, name in enumerate(macro.names):
                rest = arguments[index:] if name == "..." else arguments[index : index + 1]
                whole = [token for argument in rest for token in argument]
                given["__VA_ARGS__" if name == "..." else name] = self._expanded(whole)
        body: list[Painted] = []
        for text in macro.body:
            body += [(t, place, hidden) for t, _ in given[text]] if text in given else [(text, place, hidden)]
            if len(body) > EXPANSION_LIMIT:
                raise _TooMuch(place)
        return body


# ---------------------------------------------------------------- depth and length


def _deep(tokens: Sequence[Token]) -> Iterator[Found]:
    depth = angles = 0
    before = ""
    for text, place in tokens:
        if text in ("(", "[", "{"):
            depth += 1
        elif text in (")", "]", "}"):
            depth -= 1
        if text in (";", "{", "}", "&&", "||"):
            angles = 0
        elif text == "<" and before[:1].isidentifier():
            angles += 1
        elif text in (">", ">>"):
            angles = max(0, angles - len(text))
        before = text
        if max(depth, angles) > DEPTH_LIMIT:
            what = "brackets" if depth > DEPTH_LIMIT else "templates"
            yield place, f"{what} nested deeper than {DEPTH_LIMIT}", "name the parts, in variables or functions of their own"
            return


@dataclass
class _Statement:
    """What was counted of a statement so far, and how many round brackets are open in it."""

    operators: int = 0
    branches: int = 0
    open: int = 0


def _chains(tokens: Sequence[Token]) -> Iterator[Found]:
    """Statements that go on for too long. A block in braces is apart; what stands behind it goes on where an operator does."""
    outer: list[_Statement] = []
    now = _Statement()
    before = ""
    for index, (text, place) in enumerate(tokens):
        if text == "{":
            outer.append(now)
            now = _Statement(branches=now.branches)
        elif text == "}":
            now = outer.pop() if outer else _Statement()
            if now.open == 0 and not _goes_on(tokens[index + 1][0] if index + 1 < len(tokens) else ""):
                now = _Statement(branches=outer[-1].branches if outer else 0)
        elif text == ";" and now.open == 0:
            now = _Statement(branches=outer[-1].branches if outer else 0)
        elif text in ("(", ")"):
            now.open = max(0, now.open + (1 if text == "(" else -1))
        now.branches += text in _BRANCHES
        now.operators += _counts(text, before)
        before = text
        if now.operators > CHAIN_LIMIT:
            yield place, f"more than {CHAIN_LIMIT} operators in one statement", _SPLIT
            return
        if now.branches > BRANCH_LIMIT:
            yield place, f"more than {BRANCH_LIMIT} branches and loops in each other", "write a table, or functions"
            return


def _goes_on(text: str) -> bool:
    """Whether what follows a closing brace belongs to the same statement."""
    return text in ("(", ")", "[", "]", ",") or _OPERATOR.fullmatch(text) is not None


def _counts(text: str, before: str) -> bool:
    """Whether a token makes an expression longer: an operator that is no sign in a table, or a call or index of a result."""
    if text in ("(", "["):
        return before in (")", "]", "}")
    return _OPERATOR.fullmatch(text) is not None and not (text in ("-", "+") and before in (",", "{"))
