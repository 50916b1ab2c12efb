"""The wall behind the source screen: built objects that do more than compute, whatever their text looked like."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from accelopt_backends.cpp import CppBackend, toolchain
from accelopt_backends.cpp.instructions import found_in
from accelopt_backends.cpp.object_screen import screen_object
from accelopt_compile.errors import ObjectRefused
from accelopt_compile.evaluate.evaluate import open_evaluator
from accelopt_compile.records import KernelSource, Node, Ref, Rejected, Stage, TensorSpec, Workload

ENTRY = 'extern "C" int accelopt_kernel(void* const* tensors, const long* sizes, long threads)'
HONEST = f"{ENTRY} {{ float* out = (float*)tensors[1]; out[0] = __builtin_powf(out[0], 3); return 0; }}\n"

HOSTILE: Mapping[str, tuple[str, str]] = {
    "calls system": (f'extern "C" int system(const char*);\n{ENTRY} {{ return system("true"); }}', "it calls system"),
    "opens a file": (f'extern "C" int open(const char*, int);\n{ENTRY} {{ return open("/etc/passwd", 0); }}', "it calls open"),
    "looks up a symbol": (
        f'extern "C" void* dlsym(void*, const char*);\n{ENTRY} {{ return dlsym(0, tensors ? "exit" : "abort") != 0; }}',
        "it calls dlsym",
    ),
    "reads the time from OpenMP": (
        f'extern "C" double omp_get_wtime();\n{ENTRY} {{ return omp_get_wtime() > 1; }}',
        "it calls omp_get_wtime",
    ),
    "allocates with new": (f"{ENTRY} {{ int* p = new int[sizes[0]]; p[0] = 1; return *(volatile int*)p; }}", "it calls _Zna"),
    "constructor": (
        f"int seen;\n__attribute__((constructor)) static void early() {{ seen = 1; }}\n{ENTRY} {{ return 0; }}",
        ".init_array holds 8 bytes",
    ),
    "constructor of a static object": (
        f"struct Early {{ Early(); int v; }}; int two(); static Early early;\n"
        f"Early::Early() {{ v = two(); }} int two() {{ volatile int x = 2; return x; }}\n{ENTRY} {{ return early.v; }}",
        ".init_array holds 8 bytes",
    ),
    "destructor": (
        f"__attribute__((destructor)) static void late() {{ __builtin_trap(); }}\n{ENTRY} {{ return 0; }}",
        ".fini_array holds 8 bytes",
    ),
    "counts its calls": (f"static int calls;\n{ENTRY} {{ return ++calls > 3; }}", "(_ZL5calls): state that survives a call"),
    "remembers a pointer": (
        f"static void* last = (void*)1;\n{ENTRY} {{ void* was = last; last = tensors[0]; return was == last; }}",
        "state that survives a call",
    ),
    "remembers in a function": (
        f"{ENTRY} {{ static long memory[1 << 19]; return (int)memory[sizes[0]]++; }}",
        "state that survives a call",
    ),
    "thread storage": (f"static thread_local int mine;\n{ENTRY} {{ return ++mine > 3; }}", "PT_TLS"),
    "system call in assembly": (
        f'{ENTRY} {{ long r; asm volatile("syscall" : "=a"(r) : "a"(39) : "rcx", "r11"); return (int)r; }}',
        "the instruction `syscall` in accelopt_kernel",
    ),
    "old system call": (f'{ENTRY} {{ asm volatile("int $0x80"); return 0; }}', "the instruction `int $0x80`"),
    "flushes denormals for everybody": (
        f"{ENTRY} {{ __builtin_ia32_ldmxcsr(0x9fc0); return 0; }}",
        "the instruction `",
    ),
    "reads the clock": (f"{ENTRY} {{ return (int)__builtin_ia32_rdtsc(); }}", "the instruction `rdtsc`"),
    "asks which processor": (
        f'{ENTRY} {{ int a = 0; asm volatile("cpuid" : "+a"(a) : : "ebx", "ecx", "edx"); return a; }}',
        "the instruction `cpuid`",
    ),
    "random numbers": (f'{ENTRY} {{ int r; asm volatile("rdrand %0" : "=r"(r)); return r; }}', "the instruction `rdrand"),
    "thread base": (f'{ENTRY} {{ long r; asm("mov %%fs:0, %0" : "=r"(r)); return (int)r; }}', "%fs:"),
    "jumps to a computed address": (
        f"{ENTRY} {{ return ((int (*)(void))tensors[0])() + 1; }}",
        "the instruction `call *",
    ),
    "second function": (f'{ENTRY} {{ return 0; }}\nextern "C" int helper() {{ return 1; }}', ""),
    "no entry": ("int other() { return 0; }", "it exports nothing"),
    "entry by ifunc": (
        'extern "C" { int real(void* const*, const long*, long) { return 0; } static void* choose() { return (void*)real; }\n'
        'int accelopt_kernel(void* const*, const long*, long) __attribute__((ifunc("choose"))); }',
        "",
    ),
    "own section": (
        f'__attribute__((section(".secret"))) int hidden() {{ return 1; }}\n{ENTRY} {{ return hidden(); }}',
        "an unknown section .secret",
    ),
    "code in the linkage table": (
        f'__attribute__((section(".plt"), noinline)) int odd(int x) {{ return x * 3; }}\n{ENTRY} {{ return odd(sizes[0]); }}',
        "",
    ),
    "executable stack": (
        f'asm(".section .note.GNU-stack,\\"x\\",@progbits\\n.text");\n{ENTRY} {{ return 0; }}',
        "",
    ),
}
"""What: (source, text of the refusal). Empty where the linker's defaults may already have made it harmless."""


def built(text: str, folder: Path) -> Path:
    path, _ = toolchain.compile_shared(text, tunables={}, workdir=str(folder), name="k")
    return path


needs_x86 = pytest.mark.skipif(os.uname().machine not in ("x86_64", "amd64"), reason="x86 instructions")
needs_disassembler = pytest.mark.skipif(not (shutil.which("objdump") or shutil.which("llvm-objdump")), reason="no objdump")


def test_an_honest_kernel_passes(tmp_path: Path) -> None:
    """Arithmetic, mathematics and OpenMP are all there is in it; the record says that instructions were looked at."""
    artifact = CppBackend().build(KernelSource(language="cpp", text=HONEST), {}, str(tmp_path))
    assert "passed" == artifact.features["object_screen"]


@needs_x86
@needs_disassembler
@pytest.mark.parametrize("name", [n for n, (_, what) in HOSTILE.items() if what])
def test_a_hostile_object_is_refused(name: str, tmp_path: Path) -> None:
    """Each is compiled without a screen of its text; the object alone gives it away, and the message says by what."""
    text, what = HOSTILE[name]
    fault, _ = screen_object(built(text, tmp_path))
    assert fault is not None
    assert what in fault.what
    assert fault.hint


@pytest.mark.parametrize("name", [n for n, (_, what) in HOSTILE.items() if not what])
def test_what_the_command_line_takes_away(name: str, tmp_path: Path) -> None:
    """Other exports are hidden, the stack stays data, and what the linker makes of the rest is harmless or refused."""
    from accelopt_compile.errors import ToolchainFailed

    try:
        path = built(HOSTILE[name][0], tmp_path)
    except ToolchainFailed:
        return
    fault, _ = screen_object(path)
    if fault is None:
        listing = subprocess.run(["readelf", "-lW", "--dyn-syms", str(path)], capture_output=True, text=True).stdout
        assert "RWE" not in listing and "helper" not in listing and "IFUNC" not in listing


def test_an_object_that_is_no_object_is_refused(tmp_path: Path) -> None:
    """Garbage, and the front of a real one, cost a refusal and not an exception."""
    (tmp_path / "k.so").write_bytes(b"\x7fELF" + bytes(200))
    assert screen_object(tmp_path / "k.so")[0] is not None
    whole = built(HONEST, tmp_path).read_bytes()
    (tmp_path / "k.so").write_bytes(whole[: len(whole) // 2])
    assert screen_object(tmp_path / "k.so")[0] is not None


def test_an_object_with_another_library_is_refused(tmp_path: Path) -> None:
    """A run path or a library beyond libc, libm and OpenMP."""
    chain = toolchain.find()
    (tmp_path / "other.c").write_text("int other(void) { return 1; }")
    (tmp_path / "k.cpp").write_text(f'extern "C" int other(void);\n{ENTRY} {{ return other(); }}')
    run = [chain.compiler, "-shared", "-fPIC", "-nostartfiles"]
    subprocess.run([*run, "-x", "c", "other.c", "-o", "libother.so"], cwd=tmp_path, check=True)
    map_file = toolchain.LINK_FLAGS[1]
    subprocess.run([*run, map_file, "k.cpp", "-o", "k.so", "-L.", "-lother"], cwd=tmp_path, check=True)
    assert "other" in str(screen_object(tmp_path / "k.so")[0])
    (tmp_path / "k.cpp").write_text(HONEST.replace("__builtin_powf(out[0], 3)", "1"))
    subprocess.run([*run, map_file, "k.cpp", "-o", "k.so", "-Wl,-rpath,/tmp"], cwd=tmp_path, check=True)
    assert "DT_R" in str(screen_object(tmp_path / "k.so")[0])


def test_without_a_disassembler_the_record_says_so(tmp_path: Path) -> None:
    """The other checks still hold; a process without objdump on PATH notes that instructions were not looked at."""
    path = built(HONEST, tmp_path)
    code = f"from accelopt_backends.cpp.object_screen import screen_object as s, Path; print(s(Path({str(path)!r})))"
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "(None, 'no disassembler')" == done.stdout.strip()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("svc\t#0", "svc #0"),
        ("blr\tx8", "blr x8"),
        ("msr\tfpcr, x0", "msr fpcr, x0"),
        ("ret\tx3", "ret x3"),
        ("fadd\ts0, s1, s2", ""),
    ],
)
def test_instructions_of_arm(line: str, what: str) -> None:
    """The same rules on a disassembly for AArch64 (written by hand: there is no such machine here)."""
    listing = f"\n\nDisassembly of section .text:\n\n0000000000000400 <accelopt_kernel>:\n 400:\t{line}\n 404:\tret\n"
    found = found_in(listing, machine="EM_AARCH64")
    assert bool(what) == bool(found)
    assert what in "".join(found)


def test_the_evaluator_says_screen_and_why(tmp_path: Path) -> None:
    """A source that passes for honest text but not as an object is rejected at the screen, with the way out."""
    spec = TensorSpec(dtype="f32", shape=(8,), strides=(1,))
    relu = Node(op="aten.relu.default", args=(Ref("i", 0),), outputs=(spec,))
    workload = Workload(inputs=(spec,), nodes=(relu,), outputs=(Ref("n", 0),), output_specs=(spec,))
    text = f"{ENTRY} {{ int (*f)() = (int (*)())tensors[0]; return f() + 1; }}\n".replace("long*", "int64_t*").replace(
        " long ", " int64_t "
    )
    source = KernelSource(language="cpp", text="typedef __INT64_TYPE__ int64_t;\n" + text)
    with open_evaluator(workload, {}, backend=CppBackend(), threads=1, seed=0, workdir=str(tmp_path)) as evaluator:
        verdict = evaluator.evaluate(source, {})
    assert isinstance(verdict, Rejected)
    assert Stage.SCREEN == verdict.stage
    assert "call *" in verdict.reason
    assert "by name" in verdict.diagnosis


def test_a_refused_object_is_not_left_behind(tmp_path: Path) -> None:
    """Nothing that was refused lies where something could load it."""
    with pytest.raises(ObjectRefused, match="state that survives"):
        CppBackend().build(KernelSource(language="cpp", text=HOSTILE["counts its calls"][0]), {}, str(tmp_path))
    assert [] == [p.name for p in tmp_path.iterdir() if p.suffix == ".so" and p.stat().st_mode & stat.S_IRUSR]
