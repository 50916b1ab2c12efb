"""Building without the device: each launch of a program compiled for a named target, as the language's own launcher would.

The launcher specialises what it compiles: pointers and integers that are divisible by 16 make wide loads and pipelines
possible. What is built here assumes that all of them are, which is what sizes of models mostly are; on a device each launch
gets what its arguments allow (device.py).
"""

from __future__ import annotations

import ast
import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from accelopt_backends.triton import features
from accelopt_backends.triton.arithmetic import SourceError
from accelopt_backends.triton.binding import (
    Bound,
    Unbound,
    bind,
    known_at_build,
    launches,
    parameters_of,
    pointer_types,
    value_at_build,
)
from accelopt_backends.triton.imported import functions_of, module_of
from accelopt_backends.triton.source import Launch, Program, parse
from accelopt_backends.triton.targets import MOST_THREADS, Target
from accelopt_backends.triton.walking import chosen
from accelopt_compile.errors import ToolchainFailed, ToolchainMissing
from accelopt_compile.records import Artifact, KernelSource

FILE = "kernel.py"
FP_FUSION = True
"""Products and sums may be contracted, as compilers for these devices do by default; said explicitly, because the
language's next version turns the default around."""

DEFAULT_OPTIONS = {"num_warps": 4, "num_stages": 2, "num_ctas": 1}
DIVISIBLE = [["tt.divisibility", 16]]
INSTALL_HINT = "pip install triton (Linux); or install accelopt-compile[triton]"


@lru_cache(maxsize=1)
def version() -> str:
    """The language's version. Raises ToolchainMissing."""
    try:
        import triton
    except ImportError as missing:
        raise ToolchainMissing(f"triton cannot be imported ({missing}); {INSTALL_HINT}") from missing
    if not isinstance(triton.language.standard._sum_combine, triton.runtime.JITFunction):
        raise ToolchainMissing("triton was imported with TRITON_INTERPRET set; unset it: the interpreter is used where it is due")
    return str(triton.__version__)


def environment() -> dict[str, str]:
    """What a record keeps of the toolchain."""
    return {"compiler": f"triton {version()}", "flags": f"fp_fusion={'on' if FP_FUSION else 'off'}"}


def build(source: KernelSource, tunables: Mapping[str, int], workdir: str, target: Target) -> Artifact:
    """Compile every launch for `target`; everything that is written lies below `workdir`. Raises ToolchainFailed and
    ToolchainMissing."""
    start = time.perf_counter()
    version()
    program = parsed(source.text)
    path = Path(workdir) / FILE
    try:
        path.write_text(source.text)
    except OSError as failure:
        raise ToolchainFailed(f"the build folder {workdir} cannot be written: {failure}") from failure
    settled = chosen(program, tunables)
    compiled = [_compiled(path, program, launch, settled, target) for launch in launches(program, settled)]
    return Artifact(
        path=str(path),
        source_digest=source.digest,
        tunables=dict(tunables),
        features={"target": target.name, **features.summary(compiled), "launches": compiled},
        build_s=time.perf_counter() - start,
    )


def parsed(text: str) -> Program:
    """The program of a source. Raises ToolchainFailed."""
    try:
        return parse(text)
    except SourceError as fault:
        raise ToolchainFailed(f"the host function: {fault.reason}", diagnosis=f"line {fault.line}: {fault.hint}") from fault


# ---------------------------------------------------------------- one launch


def _compiled(path: Path, program: Program, launch: Launch, tunables: Mapping[str, int], target: Target) -> dict[str, Any]:
    """What the toolchain says of a launch (`features`). Raises ToolchainFailed."""
    known = known_at_build(program, tunables)
    options = options_of(launch, known, target)
    module = _module(path)
    function = functions_of(module)[launch.function]
    bound = bound_to(launch, function, program)
    with _written_below(path.parent / "compiled"):
        try:
            kernel = compiled(launch, function, bound, known, options, target, (True,) * len(bound.types))
        except (OSError, ToolchainFailed):
            raise  # the machine's fault, or already in the author's words
        except Exception as failure:  # a compiler on text that nobody trusts: it may raise anything, asserts among them
            raise ToolchainFailed(
                f"the compiler refused {launch.function} for {target.arch}", diagnosis=diagnosis(failure, module)
            ) from None
    said = features.of_kernel(kernel, target)
    refuse_what_cannot_run(launch, said, target)
    return {"function": launch.function, "line": launch.line, **options, **said}


def compiled(
    launch: Launch,
    function: Any,
    bound: Bound,
    known: Mapping[str, int],
    options: Mapping[str, int],
    target: Target,
    divisible: Sequence[bool],
) -> Any:
    """The language's compiled kernel of one specialisation: `divisible` by 16 or not, for each parameter. Raises what the
    compiler raises, and ToolchainFailed for constants that need a size."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(
        fn=function,
        signature=dict(zip(function.arg_names, bound.types, strict=True)),
        constexprs={(k,): v for k, v in constants_of(launch, bound, function.arg_names, known).items()},
        attrs={
            (k,): DIVISIBLE
            for k, (kind, even) in enumerate(zip(bound.types, divisible, strict=True))
            if even and kind != "constexpr"
        },
    )
    wanted = GPUTarget(target.kind, target.capability, target.warp)
    return triton.compile(source, target=wanted, options={**options, "enable_fp_fusion": FP_FUSION})


@contextlib.contextmanager
def _written_below(folder: Path) -> Iterator[None]:
    """The compiler's cache and its temporary files, which the assembler reads, are in `folder`."""
    import triton

    folder.mkdir(exist_ok=True)
    before = tempfile.tempdir
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = tempfile.tempdir = str(folder)
        try:
            yield
        finally:
            tempfile.tempdir = before


def _module(path: Path) -> Any:
    try:
        return module_of(str(path), interpreted=False)
    except Exception as failure:  # the file's own module level: anything may be raised
        raise ToolchainFailed(f"the file cannot be imported: {type(failure).__name__}: {failure}") from None


def bound_to(launch: Launch, function: Any, program: Program) -> Bound:
    """The launch's values for the function's parameters. Raises ToolchainFailed."""
    try:
        return bind(launch, parameters_of(function.fn), pointer_types(program))
    except Unbound as fault:
        raise ToolchainFailed(f"the launch of {launch.function} does not fit it", diagnosis=str(fault)) from fault


def constants_of(launch: Launch, bound: Bound, names: list[str], known: Mapping[str, int]) -> dict[int, int]:
    """Values of the constants, by position. Raises ToolchainFailed for one that needs a size: a kernel is built once, for
    all sizes."""
    return {
        k: _settled(value, known, launch, f"the constant {names[k]}")
        for k, (value, kind) in enumerate(zip(bound.values, bound.types, strict=True))
        if kind == "constexpr"
    }


def options_of(launch: Launch, known: Mapping[str, int], target: Target) -> dict[str, int]:
    """num_warps, num_stages and num_ctas of a launch. Raises ToolchainFailed where the target has no such thing."""
    options = DEFAULT_OPTIONS | {name: _settled(value, known, launch, name) for name, value in launch.options.items()}
    warps, threads = options["num_warps"], options["num_warps"] * target.warp
    if warps < 1 or warps & (warps - 1) or threads > MOST_THREADS:
        reason = f"num_warps={warps} makes {threads} threads on {target.arch}"
        hint = f"line {launch.line}: num_warps is a power of two, and a program has at most {MOST_THREADS} threads"
        raise ToolchainFailed(reason, diagnosis=hint)
    if not 1 <= options["num_stages"] <= 16:
        raise ToolchainFailed(f"num_stages={options['num_stages']}", diagnosis=f"line {launch.line}: 1 to 16, mostly 2 to 5")
    if options["num_ctas"] != 1 and not (target.clusters and options["num_ctas"] in (2, 4, 8)):
        reason = f"num_ctas={options['num_ctas']} on {target.arch}"
        raise ToolchainFailed(reason, diagnosis=f"line {launch.line}: 1; with clusters (sm_90 and later) also 2, 4 and 8")
    return options


def _settled(node: ast.expr, known: Mapping[str, int], launch: Launch, what: str) -> int:
    value = value_at_build(node, known)
    if value is not None:
        return value
    free = sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - set(known))
    raise ToolchainFailed(
        f"{what} of {launch.function} depends on {', '.join(free) or 'a division by zero'}",
        diagnosis=f"line {launch.line}: constants are made of literals and tunables; pass sizes as arguments and loop over them",
    )


# ---------------------------------------------------------------- what comes out


def refuse_what_cannot_run(launch: Launch, said: Mapping[str, Any], target: Target) -> None:
    """Raises ToolchainFailed for a built kernel that the target cannot launch."""
    shared, limit = int(said["shared_bytes"]), target.shared_bytes
    if shared > limit:
        reason = f"{launch.function} needs {shared >> 10} KiB of shared memory, {target.arch} has {limit >> 10} KiB a program"
        raise ToolchainFailed(reason, diagnosis=f"line {launch.line}: smaller blocks, or fewer num_stages")
    columns = int(said.get("tensor_memory_columns", 0))
    if columns > 512:
        reason = f"{launch.function} needs {columns} columns of tensor memory, {target.arch} has 512"
        raise ToolchainFailed(reason, diagnosis=f"line {launch.line}: smaller blocks of the product")


def diagnosis(failure: BaseException, module: Any) -> str:
    """The cause of a failed compilation in the author's words: the line of the file, the text, a caret, the message."""
    from triton.compiler.errors import CompilationError

    chain: list[BaseException] = []
    step: BaseException | None = failure
    while step is not None and step not in chain:
        chain.append(step)
        step = step.__cause__ or step.__context__
    message = next((text for e in reversed(chain) if (text := _own_message(e))), type(failure).__name__)
    for e in reversed(chain):
        if isinstance(e, CompilationError) and hasattr(e.node, "lineno"):
            for function in functions_of(module).values():
                if e.src is not None and function.src == e.src:
                    line, column = function.def_file_line_number + e.node.lineno - 1, e.node.col_offset
                    text = e.src.splitlines()[e.node.lineno - 1]
                    return f"line {line}: {message}\n{text}\n{' ' * column}^"[:2000]
    return message[:2000]


def _own_message(failure: BaseException) -> str:
    """The last words of a failure; of a failure of the assembler, what it says is wrong."""
    own = getattr(failure, "error_message", None)
    text = str(own if own is not None else "" if hasattr(failure, "node") else failure).strip()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("Repro command")]
    return "\n".join(lines[-12:])
