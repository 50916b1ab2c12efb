"""Static refusals of a C++ source: what a kernel never needs. The first wall, not the only one (see SECURITY.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from accelopt_backends.base import Refusal
from accelopt_compile.records import KernelSource

SIZE_LIMIT = 512 * 1024

_RULES: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"^\s*#\s*include"), "an include", "kernels are self-contained: declare what you need, use compiler builtins"),
    (re.compile(r"^\s*#\s*(line|import|embed|pragma\s+GCC\s+plugin)"), "a preprocessor directive that reads files", "remove it"),
    (re.compile(r"\b(asm|__asm__|__asm)\b"), "inline assembly", "use vector types and builtins"),
    (
        re.compile(r"__attribute__\s*\(\(\s*(constructor|destructor|section|alias|ifunc)"),
        "code outside the entry point",
        "remove it",
    ),
    (
        re.compile(r"\b(syscall|system|popen|fork|vfork|execve?|dlopen|dlsym|mmap|mprotect|ptrace|kill|socket|connect)\s*\("),
        "a system call",
        "a kernel only computes",
    ),
    (
        re.compile(r"\b(open|fopen|read|write|printf|puts|getenv|setenv|exit|abort|_exit|longjmp)\s*\("),
        "an effect outside the tensors",
        "a kernel only reads its inputs and writes its outputs",
    ),
    (re.compile(r"\bthread_local\b|\bpthread_|std::thread"), "threads or thread storage of its own", "use the parallel() helper"),
    (
        re.compile(r"^\s*(static|volatile)\s+(?!inline|constexpr|const\b|__attribute__)[A-Za-z_:<>*& ]+\w+\s*(=|;|\[)"),
        "state that survives a call",
        "keep everything inside the entry point",
    ),
)


def screen(source: KernelSource) -> Sequence[Refusal]:
    """Refusals with the line they stand on. Empty when the source may be built."""
    if source.language != "cpp":
        return [Refusal(line=1, reason=f"language {source.language!r}", hint="this backend builds cpp")]
    if len(source.text) > SIZE_LIMIT:
        return [Refusal(line=1, reason=f"{len(source.text)} bytes of source", hint=f"at most {SIZE_LIMIT}")]
    if 'extern "C" int accelopt_kernel(' not in source.text:
        return [
            Refusal(
                line=1,
                reason="no entry point",
                hint='define extern "C" int accelopt_kernel(void* const*, const int64_t*, int64_t)',
            )
        ]
    found = []
    for number, line in enumerate(_code_lines(source.text), start=1):
        for pattern, reason, hint in _RULES:
            if pattern.search(line):
                found.append(Refusal(line=number, reason=reason, hint=hint))
    return found


def _code_lines(text: str) -> list[str]:
    """Lines without comments; joined continuation lines keep their number."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    return [line.split("//", 1)[0] for line in text.splitlines()]
