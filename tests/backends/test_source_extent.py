"""Sources that would keep the compiler busy for minutes are refused before it starts; honest ones are far from the limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest

from accelopt_backends.base import Refusal
from accelopt_backends.cpp import CppBackend
from accelopt_backends.cpp.extent import BRANCH_LIMIT, CHAIN_LIMIT, DEPTH_LIMIT, EXPANSION_LIMIT, LINE_LIMIT
from accelopt_backends.cpp.screening import SIZE_LIMIT
from accelopt_compile.records import KernelSource

BACKEND = CppBackend()
BEFORE = "// a kernel\n"


def kernel(body: str, above: str = "") -> str:
    """A source with `above` from line 2 on, and then `body` on a line of its own."""
    entry = 'extern "C" int accelopt_kernel(void* const* tensors, const long* sizes, long threads)'
    return f"{BEFORE}{above}{entry} {{\n{body}\n return 0; }}\n"


def refusals(text: str) -> list[Refusal]:
    return list(BACKEND.screen(KernelSource(language="cpp", text=text)))


def terms(count: int, term: str = "x") -> str:
    """`x + x + ...` over many short lines."""
    return "int x = 1; int y = x" + f"\n+ {term}" * count + ";"


def doubling(steps: int, leaf: str = "x +") -> str:
    """Macros of which each uses the one before twice."""
    return f"#define A0 {leaf}\n" + "".join(f"#define A{i} A{i - 1} A{i - 1}\n" for i in range(1, steps + 1))


TOO_MUCH: Mapping[str, tuple[str, str, int]] = {
    "round brackets": (kernel("int x = " + "(" * 300 + "1" + ")" * 300 + ";"), "brackets nested deeper than", 3),
    "eighty thousand round brackets": (
        kernel("int x = " + "(\n" * 80_000 + "1" + ")" * 80_000),
        "brackets nested deeper",
        202,
    ),
    "braces": (kernel("{" * 300 + "}" * 300), "brackets nested deeper than", 3),
    "square brackets": (kernel("int x = " + "a[" * 300 + "0" + "]" * 300 + ";"), "brackets nested deeper than", 3),
    "brackets of all kinds": (kernel("auto f = " + "[&]{(" * 100 + ")}" * 100 + ";"), "brackets nested deeper than", 3),
    "templates in templates": (kernel("A<" * 300 + "int" + ">" * 300 + " a;"), "templates nested deeper than", 3),
    "templates among arguments": (kernel("A<int, " * 300 + "int" + ">" * 300 + " a;"), "templates nested deeper than", 3),
    "a long sum": (kernel(terms(2000)), "more than 1000 operators", 1003),
    "a sum of calls": (kernel(terms(2000, "f(x)")), "more than 1000 operators", 1003),
    "a sum around braces": (kernel(terms(2000, "int{1}")), "more than 1000 operators", 1003),
    "signs": (kernel("int x = 1; int y = " + "- " * 2000 + "x;"), "more than 1000 operators", 3),
    "questions": (kernel("int x = 1; int y = " + "x ? 1 : " * 2000 + "2;"), "more than 1000 operators", 3),
    "assignments": (kernel("int x; " + "x = " * 2000 + "1;"), "more than 1000 operators", 3),
    "stars": (kernel("int " + "*" * 2000 + "p;"), "more than 1000 operators", 3),
    "calls of results": (kernel("f" + "()" * 2000 + ";"), "more than 1000 operators", 3),
    "a chain of ifs": (kernel("int x = 1; " + "if (x) " * 600 + "x = 1;"), "more than 500 branches", 3),
    "a chain of loops": (kernel("int x = 1; " + "for (;;) " * 600 + "x = 1;"), "more than 500 branches", 3),
    "a condition for the preprocessor": (kernel("", "#if 1" + " + 1" * 2000 + "\n#endif\n"), "more than 1000 operators", 2),
    "macros that double": (kernel("int x = 1; int y = A30 0;", doubling(30)), "macros that expand to too many tokens", 34),
    "macros that double before an if": (kernel("", doubling(30, "1 +") + "#if A30 0\n#endif\n"), "macros that expand", 33),
    "macros that double a little": (kernel("int x = 1; int y = A11 0;", doubling(11)), "more than 1000 operators", 15),
    "macros that double their argument": (
        kernel("int y = " + "D(" * 30 + "1 +" + ")" * 30 + " 0;", "#define D(x) x x\n"),
        "macros that expand to too many tokens",
        4,
    ),
    "macros that double what calls them": (
        kernel("int y = C(D, C(D, " * 15 + "1 +" + "))" * 15 + " 0;", "#define D(x) x x\n#define C(f, x) f(x)\n"),
        "macros that expand to too many tokens",
        5,
    ),
    "macros that double in a branch not taken": (
        kernel("int x = 1; int y = A30 0;", doubling(30) + "#if 0\n#undef A29\n#define A29 1\n#endif\n"),
        "macros that expand to too many tokens",
        38,
    ),
    "brackets from macros": (
        kernel("int y = " + "P " * 20 + "1;", "#define P ((((((((((((((((((((\n"),
        "brackets nested deeper than",
        4,
    ),
    "one long line": (kernel("int x; " + "x = 1; " * 3000), "a line of", 3),
    "a line joined of many": (kernel("int x; " + "x = 1; \\\n" * 3000), "a line of", 3),
    "a long source": (kernel("x = 1;\n" * 50_000), "350", 1),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_source_that_would_keep_the_compiler_busy_is_refused(name: str) -> None:
    """In a second or two, with the line it stands on, the limit, and what to write instead."""
    text, reason, line = TOO_MUCH[name]
    began = time.process_time()
    found = [r for r in refusals(text) if r.reason.startswith(reason)]
    assert found, refusals(text)
    assert line == found[0].line
    assert found[0].hint
    assert time.process_time() - began < 5


def table(count: int) -> str:
    return "static constexpr float table[] = {" + ",\n".join(["-1.5e-3f"] * count) + "};\n"


FINE: Mapping[str, Callable[[], str]] = {
    "brackets to the limit": lambda: kernel("int x = " + "(" * (DEPTH_LIMIT - 1) + "1" + ")" * (DEPTH_LIMIT - 1) + ";"),
    "a sum below the limit": lambda: kernel(terms(CHAIN_LIMIT - 2)),
    "a table of ten thousand numbers": lambda: kernel("", table(10_000)),
    "many statements": lambda: kernel("int x = 1;\n" + "x = x + x * 2 - 1;\n" * 5000),
    "many blocks": lambda: kernel("int x = 1;\n" + "if (x == 1 && x < 3) { x = 2; }\n" * 3000),
    "many loops": lambda: kernel("int x = 1;\n" + "for (int i = 0; i < 3; ++i) { x += i; }\n" * 2000),
    "many functions": lambda: kernel(
        "", "".join(f"static inline float* f{i}(float* x) {{ return x + 1; }}\n" for i in range(2000))
    ),
    "else if, for long": lambda: kernel("int x = 1;\nif (x == 0) x = 1;\n" + "else if (x == 2) x = 3;\n" * 400),
    "comparisons": lambda: kernel("bool b = " + "&&\n".join(["x < 3"] * 400) + ";"),
    "a macro that names itself": lambda: kernel("int x = 1; x = x;", "#define x x + 0\n"),
    "macros that take turns": lambda: kernel("int a = 1, b = a;", "#define a b\n#define b a\n"),
    "a macro without its brackets": lambda: kernel("int F = 1;", "#define F(x) x\n"),
    "a macro with any number of arguments": lambda: kernel("int y = F(1, 2, 3);", "#define F(...) f(__VA_ARGS__)\n"),
    "a line to the limit": lambda: kernel("int x;" + " " * (LINE_LIMIT - 6)),
    "macros in the manner of tables": lambda: kernel("EACH(ONE)", "#define ONE(n) int v = n;\n" + "#define EACH(X) X(1) X(2)\n"),
}


@pytest.mark.parametrize("name", FINE)
def test_what_is_long_but_plain_passes(name: str) -> None:
    """Tables, unrolled statements, many functions: length alone is no fault below the limit of the whole."""
    text = FINE[name]()
    assert len(text) <= SIZE_LIMIT
    assert [] == refusals(text)


def test_the_limits_are_what_the_documentation_says() -> None:
    """A change of a limit is a change of what authors of kernels may rely on."""
    assert (200, 1000, 500, 200_000, 16_384, 262_144) == (
        DEPTH_LIMIT,
        CHAIN_LIMIT,
        BRANCH_LIMIT,
        EXPANSION_LIMIT,
        LINE_LIMIT,
        SIZE_LIMIT,
    )
