"""What a built kernel may be, checked on the file before anything loads it: the text can be written to deceive, this cannot.

Kernels are linked without start files, so that an honest one has no code that runs at load, nothing of its own that can be
written, one exported function, and asks for little. Everything is an allow-list: what is not known here is refused. Not
covered: code hidden inside the bytes of other instructions, which needs a jump to a computed address; compiled C++ has none
(`instructions` refuses it), but a write past an array on the stack could make one. That is for the sandbox to survive.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from accelopt_backends.cpp.allowed import ENTRY, FUNCTIONS
from accelopt_backends.cpp.instructions import forbidden

SIZE_LIMIT = 8 << 20
"""Bytes of the largest object; real ones have 10 to 200 KiB."""

_RUNTIME = re.compile(
    r"GOMP_(?:parallel|loop|barrier|single|critical|atomic|sections|ordered|reduction)\w*|__kmpc_\w+"  # OpenMP, for a pragma
    r"|__(?:extend|trunc|float|floatun|fix|fixuns)[a-z0-9]+|__(?:u?div|u?mod|mul)[sdt][ifc]3|__mul[sdx]c3"  # libgcc's arithmetic
    r"|__stack_chk_fail"
)
LIBRARIES = re.compile(
    r"(libc|libm|libgomp|libomp|libiomp5|libgcc_s|ld-linux-[\w-]+|ld-musl-[\w-]+|libc\.musl-[\w-]+)\.so(\.\d+)?"
)
SECTIONS = re.compile(
    r"\.(note\.[\w.-]+|hash|gnu\.hash|dynsym|dynstr|gnu\.version(_r)?|rela?\.(dyn|plt|iplt)|relr\.dyn|plt(\.got|\.sec)?|text"
    r"|rodata[\w.]*|eh_frame(_hdr)?|dynamic|got(\.plt)?|data\.rel\.ro[\w.]*)"
)
SEGMENTS = frozenset(
    {"PT_LOAD", "PT_DYNAMIC", "PT_NOTE", "PT_GNU_EH_FRAME", "PT_GNU_STACK", "PT_GNU_RELRO", "PT_GNU_PROPERTY", "PT_PHDR"}
)
_TAGS = (
    "NULL NEEDED HASH GNU_HASH STRTAB SYMTAB STRSZ SYMENT PLTGOT PLTRELSZ PLTREL JMPREL RELA RELASZ RELAENT RELACOUNT RELR "
    "RELRSZ RELRENT FLAGS FLAGS_1 BIND_NOW VERNEED VERNEEDNUM VERSYM DEBUG AARCH64_BTI_PLT AARCH64_PAC_PLT AARCH64_VARIANT_PCS"
)
TAGS = frozenset(f"DT_{name}" for name in _TAGS.split())
RELOCATIONS = {"EM_X86_64": {6, 7, 8}, "EM_AARCH64": {1025, 1026, 1027}}
"""GLOB_DAT, JUMP_SLOT and RELATIVE: addresses of imports, and of the object's own constants. No IRELATIVE, COPY or TLS."""

_AT_LOAD = (".init", ".fini", ".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors")
_WRITABLE = (".data", ".bss", ".tdata", ".tbss", ".data1", ".tm_clone_table")
_FLAGS_TEXTREL, _FLAGS_STATIC_TLS = 0x4, 0x10
_WRITE, _EXECUTE = 0x1, 0x4


@dataclass(frozen=True)
class Fault:
    """Why an object is refused: what was found, and how to write it instead."""

    what: str
    hint: str


def screen_object(path: Path) -> tuple[Fault | None, str]:
    """(the first fault or None, what was checked: "passed", or "no disassembler" where instructions were not looked at)."""
    data = path.read_bytes()
    if len(data) > SIZE_LIMIT:
        return Fault(f"an object of {len(data)} bytes", f"at most {SIZE_LIMIT}: unroll less"), "refused"
    try:
        elf = ELFFile(io.BytesIO(data))
        fault = next((f for check in _CHECKS for f in check(elf)), None)
    except (ELFError, UnicodeDecodeError, AttributeError, KeyError, TypeError, ValueError) as failure:
        return Fault(f"an object that cannot be read: {type(failure).__name__} {failure}", "build it anew"), "refused"
    if fault is not None:
        return fault, "refused"
    found = forbidden(path, machine=str(elf["e_machine"]))
    if found is None:
        return None, "no disassembler"
    return (Fault(*found), "refused") if found else (None, "passed")


def _header(elf: ELFFile) -> Iterator[Fault]:
    if elf["e_type"] != "ET_DYN" or elf["e_machine"] not in RELOCATIONS:
        yield Fault(f"an object of type {elf['e_type']} for {elf['e_machine']}", "build a shared object for this machine")
    for segment in elf.iter_segments():
        kind, flags = segment["p_type"], segment["p_flags"]
        if kind not in SEGMENTS:
            hint = "use no thread_local" if kind == "PT_TLS" else "remove the section attribute that makes it"
            yield Fault(f"a segment {kind}", hint)
        elif flags & 1 and (flags & 2 or kind == "PT_GNU_STACK"):
            yield Fault(
                "an executable stack" if kind == "PT_GNU_STACK" else "memory that can be written and executed", "remove it"
            )


def _sections(elf: ELFFile) -> Iterator[Fault]:
    for section in elf.iter_sections():
        name, flags = section.name, section["sh_flags"]
        if not flags & 2 or not section["sh_size"]:  # not in memory
            continue
        if name.startswith(_AT_LOAD):
            yield Fault(
                f"{name} holds {section['sh_size']} bytes{_named(elf, section)}: code that runs when the kernel is loaded",
                "no constructors, destructors, or static objects that need one",
            )
        elif name.startswith(_WRITABLE):
            yield Fault(
                f"{name} holds {section['sh_size']} bytes{_named(elf, section)}: state that survives a call",
                "make it constexpr, or keep it inside the entry point",
            )
        elif not SECTIONS.fullmatch(name) or (flags & _EXECUTE and not name.startswith((".text", ".plt"))):
            yield Fault(f"an unknown section {name}", "no section attributes")
        elif flags & _WRITE and not name.startswith((".dynamic", ".got", ".data.rel.ro")):
            yield Fault(f"section {name} can be written", "no section attributes")


def _part(elf: ELFFile, name: str) -> Any:
    return elf.get_section_by_name(name)


def _named(elf: ELFFile, section: Any) -> str:
    """The symbols in a section, for the message."""
    table = _part(elf, ".symtab")
    low, high = section["sh_addr"], section["sh_addr"] + section["sh_size"]
    inside = [s.name for s in table.iter_symbols() if s.name and s["st_size"] and low <= s["st_value"] < high] if table else []
    return f" ({', '.join(inside[:4])})" if inside else ""


def _symbols(elf: ELFFile) -> Iterator[Fault]:
    exported = []
    for symbol in _part(elf, ".dynsym").iter_symbols():
        name, kind = symbol.name, symbol["st_info"]["type"]
        if not name:
            continue
        if symbol["st_shndx"] != "SHN_UNDEF":
            exported.append((name, kind))
        elif name not in FUNCTIONS and not _RUNTIME.fullmatch(name):
            yield Fault(f"it calls {name}", "a kernel computes: mathematics, memcpy, memset, malloc, free and OpenMP pragmas")
    if exported != [(ENTRY, "STT_FUNC")]:
        names = ", ".join(f"{name} ({kind})" for name, kind in exported) or "nothing"
        yield Fault(f"it exports {names}", f'export exactly one function, extern "C" int {ENTRY}(...)')


def _dynamic(elf: ELFFile) -> Iterator[Fault]:
    for tag in _part(elf, ".dynamic").iter_tags():
        kind = tag.entry.d_tag
        if kind not in TAGS:
            yield Fault(f"a dynamic entry {kind}", "nothing in a kernel's source needs one")
        elif kind == "DT_NEEDED" and not LIBRARIES.fullmatch(tag.needed):
            yield Fault(f"it needs the library {tag.needed}", "a kernel links libc, libm and OpenMP only")
        elif kind == "DT_FLAGS" and tag.entry.d_val & (_FLAGS_TEXTREL | _FLAGS_STATIC_TLS):
            yield Fault("text relocations, or static thread storage", "nothing in a kernel's source needs them")


def _relocations(elf: ELFFile) -> Iterator[Fault]:
    allowed = RELOCATIONS[str(elf["e_machine"])]
    for section in elf.iter_sections():
        if not isinstance(section, RelocationSection) or not section["sh_flags"] & 2:
            continue
        for entry in section.iter_relocations():
            if entry["r_info_type"] not in allowed:
                hint = "no ifunc, no pointers to functions of other libraries, no thread storage"
                yield Fault(f"a relocation of type {entry['r_info_type']} at {entry['r_offset']:#x}", hint)


_CHECKS: tuple[Callable[[ELFFile], Iterator[Fault]], ...] = (_header, _sections, _symbols, _dynamic, _relocations)
