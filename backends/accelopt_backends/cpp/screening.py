"""Static refusals of a C++ source: everything that is not arithmetic on tensors. The first wall; `object_screen` is the next.

Lists of what is allowed wherever that is possible: directives, pragmas, attributes, reserved names, builtins, declarations of
functions from elsewhere. What these miss (state at namespace scope that was hidden in a macro, say) is in the object to see.
How deep and how long a source may be stands in `extent`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence

from accelopt_backends.base import Refusal
from accelopt_backends.cpp.allowed import ENTRY, FUNCTIONS, MACRO, MATH, MEMORY
from accelopt_backends.cpp.extent import excesses
from accelopt_backends.cpp.source_text import Code, read
from accelopt_compile.records import KernelSource

SIZE_LIMIT = 256 * 1024
MOST = 20
"""Refusals that are told at most."""

Found = tuple[int, str, str]
"""(place in the code, reason, hint)."""

_PLAIN = re.compile(r"#\s*(?:(?:ifdef|ifndef|undef)\s+\w+\s*$|(?:if|elif)\b|(?:else|endif)\s*$)")
_DEFINE = re.compile(r"#\s*define\s+([A-Za-z]\w*)")
_PRAGMA = re.compile(
    r"#\s*pragma\s+(?:omp\s+(?:parallel|for|simd|atomic|barrier|single|critical|master|masked|sections?|ordered"
    r"|declare\s+(?:simd|reduction))\b|GCC\s+(?:ivdep|unroll)\b|(?:unroll|ivdep)\b|clang\s+loop\b)"
)
_KNOWN_ATTRIBUTES = (
    "always_inline noinline vector_size aligned may_alias unused maybe_unused flatten hot cold pure const nothrow noclone packed "
    "fallthrough likely unlikely nodiscard assume_aligned ext_vector_type nonnull returns_nonnull"
)
_ATTRIBUTES = frozenset(_KNOWN_ATTRIBUTES.split())
_RESERVED = re.compile(
    r"__(?:attribute__|has_builtin|has_attribute|has_cpp_attribute|has_feature|restrict|restrict__|inline|inline__|typeof__|typeof|alignof__|const|const__|func__|VA_ARGS__|VA_OPT__|clang__"
    r"|GNUC__|GNUC_MINOR__|OPTIMIZE__|FAST_MATH__|cplusplus|int128|fp16|bf16|m(?:128|256|512)[id]?|float128|ARM_\w+|aarch64__|arm__"
    r"|x86_64__|i386__|amd64__|AVX\w*|SSE\w*|FMA__|F16C__|BMI2?__|POPCNT__|MMX__|VAES__|AMX\w*"
    r"|(?:U?INT(?:_LEAST|_FAST)?(?:8|16|32|64)|U?INT(?:MAX|PTR)|SIZE|PTRDIFF)_TYPE__"
    r"|(?:SIZEOF|FLT|DBL|FLT16|FLT32|FLT64|BFLT16|LDBL|INT|LONG|LONG_LONG|SHRT|SCHAR|CHAR|BYTE|ORDER|FLOAT)_\w+)|_Float(?:16|32|64)"
    r"|_Pragma|_Bool|_Static_assert|_Alignof|_Alignas"
)
_BUILTINS = re.compile(
    r"convertvector|shuffle|shufflevector|shuffle2|prefetch|expect|expect_with_probability|assume|assume_aligned|unreachable"
    r"|constant_p|is_constant_evaluated|bit_cast|choose_expr|classify_type|object_size|trap|nans?f?|inff?|huge_valf?|isnan|isinf"
    r"|isinf_sign|isfinite|isnormal|signbitf?|fpclassify|isgreater\w*|isless\w*|isunordered|(?:popcount|clz|ctz|ffs|clrsb|parity)l{0,2}"
    r"|bswap(?:16|32|64|128)|(?:s|u)?(?:add|sub|mul)l{0,2}_overflow|rotate(?:left|right)\d+|(?:elementwise|reduce)_\w+|nontemporal_\w+"
    r"|ia32_(?:add|sub|mul|div|max|min|sqrt|r?sqrt14|rsqrt|rcp|scalef|getexp|getmant|rndscale|round|reduce|range|fixupimm|fma|vf"
    r"|cvt|vcvt|vec_|load|store|maskload|maskstore|movnt|mov|shuf|unpck|blend|select|perm|vperm|gather|scatter|expand|compress|and|or|xor|ktest|kortest"
    r"|cmp|ucmp|com|ucom|ext|insert|broadcast|vbroadcast|align|valign|dbpsad|mpsad|vpdp|dp|h(?:add|sub)|lddqu|alternate|conflict"
    r"|vp(?!trap)|p(?!ause|twrite|config))\w*|ia32_sfence"
    r"|neon_\w+"
)
_WORDS = {
    "asm": ("inline assembly", "use vector types and builtins"),
    "__asm": ("inline assembly", "use vector types and builtins"),
    "__asm__": ("inline assembly", "use vector types and builtins"),
    "volatile": ("volatile", "a kernel reads and writes tensors; nobody watches"),
    "thread_local": ("thread storage of its own", "keep everything inside the entry point"),
    "__thread": ("thread storage of its own", "keep everything inside the entry point"),
    "new": ("memory from operator new", "use __builtin_malloc and __builtin_free within the call, or arrays on the stack"),
    "try": ("exceptions", "return a nonzero status"),
    "catch": ("exceptions", "return a nonzero status"),
    "throw": ("exceptions", "return a nonzero status"),
    "typeid": ("run-time types", "use templates"),
    "dynamic_cast": ("run-time types", "use templates"),
    "co_await": ("coroutines", "use loops"),
    "co_yield": ("coroutines", "use loops"),
    "co_return": ("coroutines", "use loops"),
    "import": ("an import", "kernels are self-contained"),
    "__has_include": ("a look at other files", "kernels are self-contained"),
    "__has_include_next": ("a look at other files", "kernels are self-contained"),
    "__has_embed": ("a look at other files", "kernels are self-contained"),
}
_STATE = "state that survives a call"
_KEEP = "make it constexpr, or keep it inside the entry point"
_OPENMP = re.compile(r"GOMP_\w+|kmp_\w+|omp_(?!get_thread_num$|get_num_threads$|get_max_threads$|in_parallel$)[gsdit]\w+")
_NUMBER_HINT = "pointers come from the tensors"
_PATTERNS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"%:|<%|%>|<:(?!:)|:>"), "a digraph", "write # { } [ ]"),
    (re.compile(r"delete\b(?<!\wdelete)(?<!= delete)(?<!=delete)"), "operator delete", "use __builtin_free"),
    (re.compile(r"goto(?<!\wgoto)\s*\*|[=({,]\s*&&\s*[A-Za-z_]\w*\s*[;,})\-]"), "a computed goto", "use switch"),
    (
        re.compile(r"\(\s*(?:const\s+)?\w+(?:\s*\*)+(?:\s*const)?\s*\)\s*\(?\s*(?:0x[0-9a-fA-F]+|[1-9]\d{3,})(?!\w*\s*\*)"),
        "a pointer made of a number",
        _NUMBER_HINT,
    ),
    (re.compile(r"reinterpret_cast\s*<[^<>;]*\*\s*>\s*\(\s*\d"), "a pointer made of a number", _NUMBER_HINT),
    (re.compile(r"static\b(?<!\wstatic)(?![^;={(\[]{0,200}\bconst(?:expr|init)?\b)[^;={(\[]{0,200}[;=\[{]"), _STATE, _KEEP),
)
_GLOBAL = re.compile(
    r"\s*(?:(?:inline|unsigned|signed|long|struct|alignas\s*\([^()]*\))\s+)*"
    r"[A-Za-z_]\w*(?:\s*<[^<>;]*>)?[\s*&]+[A-Za-z_]\w*\s*(?:\[[^\]]*\]\s*)*(?:=|$)"
)
_NOT_A_VARIABLE = re.compile(
    r"\s*(?:typedef|using|extern|template|struct|class|union|enum|namespace|constexpr|const|static|friend|static_assert|return|public"
    r"|private|protected|constinit\s+const|concept|operator)\b"
)
_ENTRY = re.compile(rf'\bextern\s+"C"\s+int\s+{ENTRY}\s*\(')
_DECLARED = re.compile(r'extern\s+"C"\s+[^;{}()]{0,200}?(\w{1,80})\s*\(')


def screen(source: KernelSource) -> Sequence[Refusal]:
    """Refusals with the line they stand on. Empty when the source may be built."""
    if source.language != "cpp":
        return [Refusal(line=1, reason=f"language {source.language!r}", hint="this backend builds cpp")]
    if len(source.text) > SIZE_LIMIT:
        return [Refusal(line=1, reason=f"{len(source.text)} bytes of source", hint=f"at most {SIZE_LIMIT}")]
    for name in source.tunables:
        if not MACRO.fullmatch(name):
            return [Refusal(line=1, reason=f"a tunable named {name[:40]!r}", hint="capitals, digits and _, at most 40")]
    return _screened(source.text)


@functools.lru_cache(maxsize=64)
def _screened(text: str) -> Sequence[Refusal]:
    code = read(text)
    checks = (_directives, _names, _attributes, _declarations, _patterns, excesses)
    found = [*code.faults, *(one for check in checks for one in itertools.islice(check(code), MOST))]
    if not found and not _ENTRY.search(code.text):
        hint = f'define extern "C" int {ENTRY}(void* const*, const int64_t*, int64_t)'
        return (Refusal(line=1, reason="no entry point", hint=hint),)
    told = dict.fromkeys((code.line(place), reason, hint) for place, reason, hint in sorted(found)[: 2 * MOST])
    return tuple(Refusal(line=line, reason=reason, hint=hint) for line, reason, hint in list(told)[:MOST])


def _directives(code: Code) -> Iterator[Found]:
    for match in re.finditer(r"^[ \t]*(#[^\n]*)|#", code.text, re.MULTILINE):
        line, place = match[1], match.start(1 if match[1] else 0)
        if line is None:
            yield place, "a # inside a line", "directives stand alone; no # and ## operators"
        elif (define := _DEFINE.match(line)) is not None:
            if "#" in line[1:]:
                yield place, "the # or ## operator", "write the tokens out"
            elif define[1].startswith("defined"):
                yield place, f"a definition of {define[1]}", "use another name"
        elif re.match(r"#\s*(?:include|import|embed)", line):
            yield place, "an include", "kernels are self-contained: declare what you need, use compiler builtins"
        elif re.match(r"#\s*pragma\b", line):
            if not _PRAGMA.match(line):
                yield place, "a pragma", "OpenMP's for parallel loops, GCC ivdep and GCC unroll are what there is"
        elif not _PLAIN.match(line) and line.strip() != "#":
            yield (
                place,
                f"the directive {line.split()[0]}",
                "#define, #undef, #if, #ifdef, #ifndef, #elif, #else, #endif, #pragma",
            )


def _names(code: Code) -> Iterator[Found]:
    """Words of the language that a kernel has no use for, and reserved names that are not known to be harmless."""
    words = set(re.findall(r"[A-Za-z_]\w*", code.text))
    for word in words:
        if word in _WORDS:
            yield _place(code, word), *_WORDS[word]
        elif _OPENMP.fullmatch(word):
            yield _place(code, word), f"the OpenMP runtime by name, {word}", "pragmas, omp_get_thread_num and omp_get_num_threads"
        elif word.startswith("__builtin_"):
            name = word.removeprefix("__builtin_")
            if name not in MATH and name not in MEMORY and not _BUILTINS.fullmatch(name):
                yield _place(code, word), f"the builtin {word}", "vector types, mathematics, memcpy, memset, malloc and free"
        elif (word.startswith("__") or (word[0] == "_" and word[1:2].isupper())) and not _RESERVED.fullmatch(word):
            yield _place(code, word), f"the reserved name {word}", "names with two underscores belong to the compiler"


def _place(code: Code, word: str) -> int:
    match = re.search(rf"\b{word}\b", code.text)
    return match.start() if match else 0


def _attributes(code: Code) -> Iterator[Found]:
    """Every name in `__attribute__((...))` and `[[...]]` must be known."""
    for match in re.finditer(r"__attribute__\s*|\[\s*\[", code.text):
        if match[0][0] == "_" and not code.text.startswith("((", match.end()):
            yield match.start(), "an attribute without its list", "__attribute__((name)) in one piece"
        inside = _inside(code.text, match.end() if match[0][0] == "_" else match.start())
        for name in re.split(r"[,\s]+", re.sub(r"\bgnu\s*::", "", inside)):
            if name and name.strip("_") not in _ATTRIBUTES:
                yield match.start(), f"the attribute {name}", "always_inline, noinline, vector_size, aligned, may_alias and such"


def _inside(text: str, start: int) -> str:
    """What stands between two brackets and their partners, without what is in brackets therein."""
    depth = 0
    kept: list[str] = []
    for char in text[start : start + 500]:
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
            if depth == 0:
                return "".join(kept)
        elif depth == 2 or (depth == 1 and not char.isspace()):
            kept.append(char)
    return "".join(kept) or "?"


def _declarations(code: Code) -> Iterator[Found]:
    """Functions from elsewhere: by `extern "C"`, one at a time, and only those a kernel may call."""
    for match in re.finditer(r"extern\b(?<!\wextern)", code.text):
        declared = _DECLARED.match(code.text, match.start())
        if declared is None:
            yield match.start(), "an extern declaration", f'extern "C" in front of {ENTRY} and of single functions, no blocks'
        elif declared[1] != ENTRY and declared[1] not in FUNCTIONS:
            yield (
                match.start(),
                f"a call of {declared[1]}",
                "a kernel computes: libm, memcpy, memset, malloc, free, OpenMP pragmas",
            )


def _patterns(code: Code) -> Iterator[Found]:
    for pattern, reason, hint in _PATTERNS:
        for match in pattern.finditer(code.text):
            yield match.end() - 1, reason, hint
    depth = start = 0
    for match in re.finditer(r"[{};]", code.text):  # statements at namespace scope
        if depth == 0 and match[0] != "}":
            statement = re.sub(r"^[ \t]*#.*$", "", code.text[start : match.start()], flags=re.MULTILINE)
            if _GLOBAL.match(statement) and not _NOT_A_VARIABLE.match(statement):
                yield match.start(), _STATE, _KEEP
        depth = max(0, depth + {"{": 1, "}": -1, ";": 0}[match[0]])
        if depth == 0:
            start = match.end()
