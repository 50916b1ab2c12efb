"""Instructions that arithmetic never needs, looked for in a disassembly: the kernel's door, clocks, modes, computed jumps."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

TIMEOUT_S = 30.0

_PREFIX = r"(?:(?:lock|rep[a-z]*|notrack|bnd|data16|data32|addr32|[c-gs]s|rex(?:\.\w+)?|xacquire|xrelease|\{\w+\})[ \t]+)*"

_X86 = (
    "syscall sysenter sysret sysexit int int1 int3 into iret hlt cli sti clts in ins out outs "
    "lgdt lidt lldt ltr lmsw sgdt sidt sldt str smsw rdmsr wrmsr swapgs invd wbinvd wbnoinvd invlpg invpcid "
    "rdtsc rdtscp rdpmc rdpid cpuid rdrand rdseed xgetbv xsetbv rdfsbase rdgsbase wrfsbase wrgsbase rdpkru wrpkru "
    "xsave xsavec xsaveopt xsaves xrstor xrstors fxsave fxrstor fsave fnsave frstor fldenv fnstenv fstenv fldcw fninit finit "
    "ldmxcsr vldmxcsr stmxcsr vstmxcsr clflush clflushopt clwb cldemote clzero monitor monitorx mwait mwaitx umonitor umwait "
    "tpause xbegin xend xabort xtest enclu encls enclv vmcall vmmcall vmlaunch vmresume vmfunc vmrun "
    "incsspd incsspq rdsspd rdsspq saveprevssp rstorssp setssbsy clrssbsy wrssd wrssq wrussd wrussq uiret testui clui stui "
    "senduipi enqcmd enqcmds ptwrite pushf popf std lret ljmp lcall lds les lfs lgs lss"
)
_AARCH64 = "svc hvc smc hlt dcps1 dcps2 dcps3 eret drps msr mrs sys sysl dc ic at tlbi wfe wfi wfet wfit sev sevl"


def _words(names: str, suffix: str) -> str:
    return rf"(?:{'|'.join(sorted(names.split(), key=len, reverse=True))}){suffix}(?![\w.])"


_RULES: dict[str, tuple[re.Pattern[str], re.Pattern[str]]] = {
    "EM_X86_64": (
        re.compile(
            rf"\t[ ]*{_PREFIX}(?:(?P<forbidden>{_words(_X86, '(?:[bwlq]|64)?')})|(?P<indirect>(?:call|jmp)[lqw]?[ \t]+\*)"
            r"|(?P<unknown>\(bad\)|\.byte|<unknown>))[^\n]*|(?P<register>%(?:[fg]s:(?!0x28\b|40\b)|[c-gs]s\b(?!:)|[cd]b?r\d))"
        ),
        re.compile(rf"\t[ ]*{_PREFIX}(?:jmpq?|pushq?|nop[wlq]?|endbr64|xchgw?)\b"),
    ),
    "EM_AARCH64": (
        re.compile(
            rf"\t[ ]*(?:(?P<forbidden>{_words(_AARCH64, '')})|(?P<indirect>(?:blr|br|b?l?ra[ab]z?|ret)[ \t]+x(?!30\b)\d+)"
            r"|(?P<unknown>\.inst|<unknown>|udf))[^\n]*"
        ),
        re.compile(r"\t[ ]*(?:adrp|ldr|add|br|nop|bti|stp|autia1716|hint)\b"),
    ),
}
"""A machine's (what must not be in the text, what alone may be in the procedure linkage table)."""

_HINTS = {
    "forbidden": "a kernel only computes: no system calls, clocks, random numbers, cache control or changes of the rounding mode",
    "indirect": "call functions by name: no pointers to functions and no jumps to computed addresses",
    "unknown": "the disassembler does not know it: install binutils that match the compiler, or use plain C++",
    "register": "no thread storage, no segment and control registers",
}


@functools.cache
def disassembler() -> str | None:
    """objdump or llvm-objdump, or None where neither is installed."""
    return shutil.which("objdump") or shutil.which("llvm-objdump")


def forbidden(path: Path, *, machine: str) -> tuple[str, str] | tuple[()] | None:
    """(what, hint) of the first instruction that a kernel may not have; () when there is none; None when nobody can tell."""
    tool = disassembler()
    if tool is None:
        return None
    try:
        done = subprocess.run(
            [tool, "-d", "--no-show-raw-insn", str(path)], capture_output=True, text=True, timeout=TIMEOUT_S, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return f"its disassembly failed: {failure}", "build it anew; simplify the source if it happens again"
    if done.returncode or "Disassembly of section .text" not in done.stdout:
        return f"its disassembly failed: {done.stderr.strip()[:200]}", "build it anew; simplify the source if it happens again"
    return found_in(done.stdout, machine=machine)


def found_in(listing: str, *, machine: str) -> tuple[str, str] | tuple[()]:
    """`forbidden` on the text of a disassembly."""
    text, linkage = _RULES[machine]
    for part in listing.split("Disassembly of section ")[1:]:
        section, _, body = part.partition(":\n")
        if section.startswith(".plt"):
            strange = next((line for line in body.splitlines() if "\t" in line and not linkage.search(line)), None)
            if strange is not None:
                return f"code in {section}: {_instruction(strange)}", "no section attributes"
        elif (match := text.search(body)) is not None:
            kind = str(match.lastgroup)
            label = re.findall(r"^[0-9a-f]+ <([^>]+)>:", body[: match.start()], re.MULTILINE)
            place = f" in {label[-1]}" if label else ""
            return f"the instruction `{_instruction(match[0])}`{place}", _HINTS[kind]
    return ()


def _instruction(line: str) -> str:
    """The instruction of a line, without its address and the disassembler's comment."""
    return " ".join(re.sub(r"\s+# [0-9a-f]+.*$|^\s*[0-9a-f]+:", "", line).split())
