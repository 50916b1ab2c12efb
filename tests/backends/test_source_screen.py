"""The wall in front of the compiler: texts that do more than arithmetic, in the spellings that hide it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from accelopt_backends.cpp import CppBackend
from accelopt_backends.cpp.source_text import read
from accelopt_compile.records import KernelSource
from tests.backends.seeds import regions_of
from tests.backends.test_cpp_seeds import CASES, R

BACKEND = CppBackend()
ENTRY = 'extern "C" int accelopt_kernel(void* const* tensors, const long* sizes, long threads)'
KERNEL = f"// a kernel\n{ENTRY} {{ return 0; }}\n"

REFUSED: Mapping[str, tuple[str, str]] = {
    "include": ("#include <unistd.h>", "an include"),
    "include after a comment": ("/* x */ # /* y */ include <unistd.h>", "an include"),
    "include over two lines": ("#incl\\\nude <unistd.h>", "an include"),
    "include over two lines with a blank": ("#incl\\  \nude <unistd.h>", "an include"),
    "include by digraph": ("%:include <unistd.h>", "a digraph"),
    "include by trigraph": ("??=include <unistd.h>", "a trigraph"),
    "include by macro": ("#define FILE <unistd.h>\n#include FILE", "an include"),
    "embed": ('const char data[] = {\n#embed "/etc/passwd"\n};', "an include"),
    "line": ('#line 1 "x"', "the directive #line"),
    "has include": ("#if __has_include(<unistd.h>)\n#endif", "a look at other files"),
    "pragma of the compiler": ("#pragma GCC optimize (3)", "a pragma"),
    "pragma that names": ("#pragma redefine_extname a b", "a pragma"),
    "pragma for devices": ("#pragma omp target", "a pragma"),
    "thread storage by pragma": ("int x;\n#pragma omp threadprivate(x)", "a pragma"),
    "pragma operator": ('_Pragma("GCC optimize (3)")', "a string"),
    "pasted tokens": ("#define PASTE(a, b) a##b", "the # or ## operator"),
    "redefined attribute": ("#define __attribute__(x) x", "the directive #define"),
    "assembly": ('asm("syscall");', "inline assembly"),
    "assembly in disguise": ('__asm__("syscall");', "inline assembly"),
    "assembly over two lines": ('a\\\nsm("syscall");', "inline assembly"),
    "assembly by universal name": ('\\u0061sm("syscall");', "the character"),
    "assembly behind a number": ("int f() { return 1'000; } asm(nothing);", "inline assembly"),
    "assembly behind a character": ("int f() { return '\"'; } asm(nothing); // \"", "inline assembly"),
    "string": ('int f() { return "abc"[1]; }', "a string"),
    "raw string": ('auto f() { return R"(*/)"; }', "a literal with a prefix"),
    "system": ('extern "C" int system(const char*);', "a call of system"),
    "block of declarations": ('extern "C" { int getpid(); }', "an extern declaration"),
    "variable from elsewhere": ("extern char** environ;", "an extern declaration"),
    "OpenMP's clock": ('extern "C" double omp_get_wtime();', "the OpenMP runtime by name, omp_get_wtime"),
    "OpenMP's entry": (
        'extern "C" void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);',
        "the OpenMP runtime by name",
    ),
    "constructor": ("__attribute__((constructor)) void f();", "the attribute constructor"),
    "constructor in brackets": ("[[gnu::constructor]] void f();", "the attribute constructor"),
    "constructor among others": ("__attribute__((noinline, __constructor__(101))) void f();", "the attribute __constructor__"),
    "attribute by macro": ("#define A(x) __attribute__((x))\nA(constructor) void f();", "the attribute x"),
    "attribute in two pieces": (
        "#define A __attribute__\nint f();\nA((constructor)) void g();",
        "an attribute without its list",
    ),
    "section": ('__attribute__((section(".init_array"))) void* p;', "the attribute section"),
    "static variable": ("static int calls = 0;", "state that survives a call"),
    "static array": ("static float memory[1 << 20];", "state that survives a call"),
    "global variable": ("float* last;", "state that survives a call"),
    "global with a value": ("unsigned long long seen = 3;", "state that survives a call"),
    "thread local": ("thread_local int x;", "thread storage of its own"),
    "volatile": ("int f(volatile int* p) { return *p; }", "volatile"),
    "operator new": ("int* f() { return new int[3]; }", "memory from operator new"),
    "operator delete": ("void f(int* p) { delete p; }", "operator delete"),
    "exceptions": ("void f() { throw 1; }", "exceptions"),
    "computed goto": ("void f() { void* p = &&here; goto *p; here: return; }", "a computed goto"),
    "pointer from a number": ("int f() { return *(int*)0x7ffff000; }", "a pointer made of a number"),
    "pointer from a number by cast": ("int f() { return *reinterpret_cast<int*>(4096); }", "a pointer made of a number"),
    "clock": ("long f() { return __builtin_ia32_rdtsc(); }", "the builtin __builtin_ia32_rdtsc"),
    "mode": ("void f() { __builtin_ia32_ldmxcsr(0); }", "the builtin __builtin_ia32_ldmxcsr"),
    "cache control": ("void f(int* p) { __builtin_ia32_clflush(p); }", "the builtin __builtin_ia32_clflush"),
    "stack walk": ("void* f() { return __builtin_return_address(0); }", "the builtin __builtin_return_address"),
    "processor": ("int f() { return __builtin_cpu_supports; }", "the builtin __builtin_cpu_supports"),
    "reserved name": ("long f() { return __dso_handle; }", "the reserved name __dso_handle"),
    "date": ("int f() { return sizeof(__TIME__); }", "the reserved name __TIME__"),
    "control character": ("int f();\x00", "a control character"),
    "open comment": ("/* for ever", "a comment that never ends"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_source_with_more_than_arithmetic_is_refused(name: str) -> None:
    """Each refusal names its line (joined lines count as written), what it found, and what to write instead."""
    text, reason = REFUSED[name]
    refusals = BACKEND.screen(KernelSource(language="cpp", text=KERNEL + text + "\n"))
    found = [r for r in refusals if r.reason.startswith(reason)]
    assert found, refusals
    assert 2 < found[0].line <= 2 + text.count("\n") + 1
    assert all(r.hint for r in refusals)


@pytest.mark.parametrize(
    "text",
    [
        "// asm, #include, 'quotes\" and ünïcode are prose here",
        '/* static int x;\n   system("x") */',
        "static const int table[3] = {1, 2, 3};",
        "static constexpr float third = 1.0f / 3;",
        "constexpr long big = 1'000'000;",
        "typedef float v8 __attribute__((vector_size(sizeof(float) * 8), aligned(1), may_alias));",
        "template <class T> static inline __attribute__((always_inline)) T twice(T x) { T y = x; return y + x; }",
        'extern "C" float tanhf(float);',
        "struct Pair { float a; int b; Pair(const Pair&) = delete; };",
        "int letter() { return 'a'; }",
        "[[maybe_unused]] static int f(int&& x) { return x; }",
        "#if defined(__AVX512F__) && !defined(__clang__)\n#define WIDE 1\n#else\n#define WIDE 0\n#endif\n#undef WIDE",
        "#define TWO(NAME) \\\n  static inline float NAME(float x) { \\\n    return x + x; \\\n  }\nTWO(both)",
        "int f() {\n#pragma omp simd\n  for (int i = 0; i < 3; ++i) { }\n  return 0; }",
    ],
)
def test_what_an_honest_author_writes_passes(text: str) -> None:
    """Tables, templates, macros, comments about anything."""
    assert [] == list(BACKEND.screen(KernelSource(language="cpp", text=text + "\n" + KERNEL)))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", CASES)
def test_every_kernel_of_the_generator_passes(name: str) -> None:
    """All workloads of the seed tests, at every structure the grammar offers."""
    function, shapes = CASES[name]
    for workload, _ in regions_of(function, *(R(s) for s in shapes)):
        grammar = BACKEND.grammar(workload)
        for values in itertools.product(*grammar.values()):
            source = BACKEND.render(workload, dict(zip(grammar, values, strict=True)))
            assert [] == list(BACKEND.screen(source))


def test_a_tunable_becomes_a_macro_and_nothing_else() -> None:
    """A name with code in it would reach the compiler on its command line."""
    evil = KernelSource(language="cpp", text=KERNEL, tunables={"X=__attribute__((constructor))void f(){}//": (1,)})
    (refusal,) = BACKEND.screen(evil)
    assert refusal.reason.startswith("a tunable named")


def test_a_source_without_entry_or_of_another_language_is_refused() -> None:
    """An entry in a comment is none."""
    (refusal,) = BACKEND.screen(KernelSource(language="cpp", text=f"// {ENTRY}\nint f();\n"))
    assert "no entry point" == refusal.reason
    (refusal,) = BACKEND.screen(KernelSource(language="nki", text=KERNEL))
    assert "language 'nki'" == refusal.reason


@pytest.mark.parametrize(
    "piece", ["static ", "(x*)", "\\\n", "\n\n", "__a ", "é", "(((((", "extern ", "__attribute__((", "'", '"', "/*/"]
)
def test_a_hostile_text_does_not_hold_up_the_screen(piece: str) -> None:
    """It runs in the user's process: a quarter of a megabyte of anything takes seconds at most."""
    text = KERNEL + piece * (250_000 // len(piece.encode()))
    started = time.monotonic()
    BACKEND.screen(KernelSource(language="cpp", text=text))
    assert time.monotonic() - started < 5


def test_places_are_told_by_the_lines_of_the_source() -> None:
    """Joined lines keep their numbers."""
    code = read("a\\\nb\nc /* \n */ d\n")
    assert [1, 3, 4] == [code.line(code.text.index(letter)) for letter in "acd"]
    assert replace(code, text="").splices == code.splices == (1,)


@pytest.mark.parametrize("number", [0x1B, 0x7F, 0x80, 0x9B, 0x9F, 0x200B, 0x200F, 0x2028, 0x202E, 0x2060, 0x2069, 0xFEFF, 0xD800])
@pytest.mark.parametrize("form", ["// {}\n", "/* {} */\n", "int f{}();\n"])
def test_what_deceives_a_reader_is_refused_even_in_a_comment(number: int, form: str) -> None:
    """Orders to a terminal, text that runs the other way, characters without a width."""
    source = KernelSource(language="cpp", text=KERNEL + form.format(chr(number)), origin="llm")
    assert "a control character" in [getattr(refusal, "reason", "") for refusal in BACKEND.screen(source)]
