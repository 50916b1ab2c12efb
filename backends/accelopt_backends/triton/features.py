"""What the toolchain says of a built kernel: registers, spills, shared memory, and which instructions it is made of.

Resource figures come from `cuobjdump -res-usage` and the instructions from `nvdisasm`, both in the language's own package; for
the other kind of device from the assembly text. Counts are of the text, not of what is executed.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from accelopt_backends.triton.targets import Target

_TOOL_S = 30.0

_SASS = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)
_SASS_KINDS: tuple[tuple[str, str], ...] = (
    ("tensor", r"[HIDQB]G?MMA|UTC\w*MMA|OMMA"),
    ("async_copies", r"LDGSTS|UBLKCP|UTMALDG|UTMASTG"),
    ("global_loads", r"LDG|LD"),
    ("global_stores", r"STG|ST"),
    ("shared_loads", r"LDS|LDSM"),
    ("shared_stores", r"STS|STSM"),
    ("local_loads", r"LDL"),
    ("local_stores", r"STL"),
    ("atomics", r"ATOM|ATOMG|ATOMS|RED|REDG"),
    ("barriers", r"BAR|WARPSYNC|SYNCS|DEPBAR|ACQBULK"),
    ("float", r"F(ADD|MUL|FMA|SEL|MNMX|SETP|SET|CHK|RND)\w*|H(ADD|MUL|FMA|SETP|MNMX)2\w*|D(ADD|MUL|FMA|SETP)"),
    ("special", r"MUFU"),
    ("conversions", r"F2F\w*|F2I\w*|I2F\w*|F2FP|I2I\w*"),
    ("shuffles", r"SHFL|REDUX|VOTE\w*"),
    ("branches", r"BRA|BRX|JMP|CALL|RET|EXIT|BSYNC|BSSY"),
)
_GROUPED = re.compile(r"[HIQD]GMMA|UTC\w*MMA")
"""Matrix instructions of a whole group of warps, which alone reach the peak where an arch has them."""

_AMD_INSTRUCTION = re.compile(r"^\s+((?:[svb]_|ds_|global_|buffer_|flat_|scratch_)\w+)", re.MULTILINE)
_AMD_KINDS: tuple[tuple[str, str], ...] = (
    ("tensor", r"v_s?mfmac?_\w+"),
    ("global_loads", r"(global|buffer|flat)_load\w*"),
    ("global_stores", r"(global|buffer|flat)_store\w*"),
    ("shared_loads", r"ds_(read|load)\w*"),
    ("shared_stores", r"ds_(write|store)\w*"),
    ("local_loads", r"scratch_load\w*"),
    ("local_stores", r"scratch_store\w*"),
    ("atomics", r"(global|buffer|flat|ds)_(atomic|add|max|min)\w*"),
    ("barriers", r"s_barrier\w*"),
    ("special", r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_\w+"),
    ("conversions", r"v_cvt_\w+"),
    ("float", r"v_(pk_)?(fma|add|sub|mul|mac|max|min|cmp\w*)\w*_f(16|32|64)\w*"),
    ("shuffles", r"ds_(bpermute|permute|swizzle)\w*|v_(readlane|permlane)\w*"),
    ("branches", r"s_c?branch\w*|s_endpgm"),
)


def of_kernel(kernel: Any, target: Target) -> dict[str, Any]:
    """Figures of a compiled kernel. "shared_bytes" is what a program takes, "spill_bytes" what a thread does not hold in
    registers; "vector_loads" and "vector_stores" those of 16 bytes."""
    about = {"threads": int(kernel.metadata.num_warps) * target.warp, "shared_bytes": int(kernel.metadata.shared)}
    if columns := int(getattr(kernel.metadata, "tmem_size", 0) or 0):
        about["tensor_memory_columns"] = columns
    if target.kind == "hip":
        return about | amd_features(kernel.asm["amdgcn"])
    return about | cuda_features(_object_file(kernel))


def _object_file(kernel: Any) -> Path:
    """The cubin, which lies in the compiler's cache folder."""
    return next(Path(path) for name, path in kernel.metadata_group.items() if name.endswith(".cubin"))


def cuda_features(cubin: Path) -> dict[str, Any]:
    """Of an object file, through the tools of the language's package; without an answer of theirs, nothing."""
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    return resource_usage(_run([tools / "cuobjdump", "-res-usage", cubin])) | instruction_mix(
        _run([tools / "nvdisasm", "-c", "-ndf", cubin])
    )


def _run(command: Sequence[Path | str]) -> str:
    try:
        return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=_TOOL_S).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def resource_usage(text: str) -> dict[str, int]:
    """Registers a thread, and bytes of the stack that spilled values go to."""
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", text)
    if found is None:
        return {}
    return {"registers": int(found[1]), "spill_bytes": int(found[2])}


def instruction_mix(text: str) -> dict[str, int]:
    """Counts of instructions by kind, from a disassembly."""
    names = _SASS.findall(text)
    wide = {
        "vector_loads": sum(1 for n in names if n.startswith(("LDG.", "LDGSTS.")) and ".128" in n),
        "vector_stores": sum(1 for n in names if n.startswith("STG.") and ".128" in n),
    }
    grouped = sum(1 for n in names if _GROUPED.match(n))
    return (
        _counted((n.split(".")[0] for n in names), _SASS_KINDS)
        | (wide if names else {})
        | ({"grouped": grouped} if grouped else {})
    )


def amd_features(text: str) -> dict[str, int]:
    """Of an assembly text: registers as the metadata says, and counts."""
    figures = {name: int(value) for name, value in re.findall(r"\.(\w+_count|private_segment_fixed_size):\s+(\d+)", text)}
    names = _AMD_INSTRUCTION.findall(text)
    return {
        "registers": figures.get("vgpr_count", 0),
        "scalar_registers": figures.get("sgpr_count", 0),
        "spill_bytes": max(4 * figures.get("vgpr_spill_count", 0), figures.get("private_segment_fixed_size", 0)),
        **_counted(names, _AMD_KINDS),
        "vector_loads": sum(1 for n in names if re.fullmatch(r"(global|buffer|flat)_load_(dwordx4|b128)\w*", n)),
        "vector_stores": sum(1 for n in names if re.fullmatch(r"(global|buffer|flat)_store_(dwordx4|b128)\w*", n)),
    }


def _counted(names: Iterable[str], kinds: Sequence[tuple[str, str]]) -> dict[str, int]:
    patterns = [(kind, re.compile(pattern)) for kind, pattern in kinds]
    counts: dict[str, int] = {}
    for name in names:
        counts["instructions"] = counts.get("instructions", 0) + 1
        kind = next((kind for kind, pattern in patterns if pattern.fullmatch(name)), None)
        if kind is not None:
            counts[kind] = counts.get(kind, 0) + 1
    return counts


_WORST = ("registers", "scalar_registers", "spill_bytes", "shared_bytes", "threads", "tensor_memory_columns")


def summary(kernels: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """One figure a kind for all launches of a program: the largest of what a program takes, the sum of instructions."""
    names = dict.fromkeys(name for k in kernels for name, value in k.items() if isinstance(value, int) and name != "line")
    return {
        name: (max if name in _WORST or name.startswith("num_") else sum)(int(k.get(name, 0)) for k in kernels) for name in names
    }
