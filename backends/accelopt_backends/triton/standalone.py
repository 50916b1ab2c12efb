"""A kernel as a module that needs only torch and triton: the device functions as they are, the host function as plain Python."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from accelopt_backends.base import Standalone
from accelopt_backends.triton.arithmetic import INTERPRETED, SourceError
from accelopt_backends.triton.binding import Parameters, Unbound, bind, pointer_types
from accelopt_backends.triton.source import HOST, POINTERS, Assign, Launch, Leave, Program, Scratch, parse
from accelopt_compile.records import KernelSource

_TORCH = {
    "f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16", "i64": "int64", "i32": "int32", "i16": "int16",
    "i8": "int8", "u8": "uint8", "b8": "bool",
}  # fmt: skip


def standalone(source: KernelSource, tunables: Mapping[str, int], target: str) -> Standalone:
    """See `Backend.standalone`. Sizes reach a kernel as 64-bit integers, as they did when it was proven: the parameters that
    get them are annotated, because the language takes an integer that fits for a 32-bit one."""
    try:
        program = parse(source.text)
        module = ast.parse(source.text)
        chosen = {name: values[0] for name, values in program.tunables.items()} | dict(tunables)
        functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
        wide = _wide_parameters(program, functions)
    except (SourceError, Unbound) as failure:
        raise ValueError(f"the kernel cannot be read: {failure}") from failure
    head = ["import os", "", "import torch", "", f'{INTERPRETED} = int(os.environ.get("TRITON_INTERPRET") == "1")']
    device = "\n".join(_device_lines(source.text, functions, wide)).strip("\n")
    text = "\n".join([*head, "", device, "", "", *_host(program, chosen)]) + "\n"
    platform = target.split("-")[1] if target.count("-") >= 2 else "cuda"
    return Standalone(language="triton", text=text, hardware=(platform,), dependencies=("torch", "triton"))


def _wide_parameters(program: Program, functions: Mapping[str, ast.FunctionDef]) -> set[tuple[str, str]]:
    """(function, parameter) of every integer that a launch gives. Raises Unbound."""
    found: set[tuple[str, str]] = set()
    pointers = pointer_types(program)
    for step in program.steps:
        if not isinstance(step, Launch):
            continue
        parameters = _parameters(functions[step.function])
        bound = bind(step, parameters, pointers)
        found |= {(step.function, name) for name, kind in zip(parameters.names, bound.types, strict=True) if kind == "i64"}
    return found


def _parameters(function: ast.FunctionDef) -> Parameters:
    args = function.args
    positional = [*args.posonlyargs, *args.args]
    defaults = dict(zip([a.arg for a in positional[len(positional) - len(args.defaults) :]], args.defaults, strict=True))
    defaults |= {a.arg: d for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None}
    every = [*positional, *args.kwonlyargs]
    constant = (a.arg for a in every if a.annotation is not None and "constexpr" in ast.unparse(a.annotation))
    return Parameters(names=tuple(a.arg for a in every), constexprs=frozenset(constant), defaults=defaults)


def _device_lines(text: str, functions: Mapping[str, ast.FunctionDef], wide: set[tuple[str, str]]) -> Iterator[str]:
    """The file's lines without the host function, the parameters in `wide` annotated."""
    lines = text.splitlines()
    marks = [
        (arg.end_lineno or arg.lineno, arg.end_col_offset or 0)
        for name, function in functions.items()
        for arg in function.args.args
        if (name, arg.arg) in wide and arg.annotation is None
    ]
    for line, column in sorted(marks, reverse=True):
        data = lines[line - 1].encode()  # columns count bytes
        lines[line - 1] = (data[:column] + b': "i64"' + data[column:]).decode()
    host = functions[HOST]
    yield from (line for k, line in enumerate(lines, start=1) if not host.lineno <= k <= (host.end_lineno or host.lineno))


def _host(program: Program, tunables: Mapping[str, int]) -> Iterator[str]:
    tensors = [name for name, _ in program.tensors]
    yield f"def {HOST}({', '.join([*tensors, *program.symbols])}):"
    for name, value in tunables.items():
        yield f"    {name} = {value}"
    yield f"    with torch.cuda.device_of({tensors[0]}):"
    for step in program.steps:
        for line in _step(step, tensors[0]):
            yield f"        {line}"


def _step(step: Assign | Scratch | Leave | Launch, beside: str) -> Sequence[str]:
    match step:
        case Assign():
            return [f"{step.name} = {ast.unparse(step.value)}"]
        case Scratch():
            made, dtype = "zeros" if step.zeroed else "empty", _TORCH[POINTERS[step.dtype]]
            count = f"max(0, {ast.unparse(step.elements)})"
            return [f"{step.name} = torch.{made}({count}, dtype=torch.{dtype}, device={beside}.device)"]
        case Leave(status=0):
            return [f"if {ast.unparse(step.condition)}:", "    return"]
        case Leave():
            return [f"if {ast.unparse(step.condition)}:", '    raise ValueError("the kernel declines these sizes")']
    axes = [ast.unparse(axis) for axis in step.grid]
    given = {**step.constants, **step.options}
    arguments = [*(ast.unparse(a) for a in step.args), *(f"{name}={ast.unparse(value)}" for name, value in given.items())]
    condition = " and ".join(f"({axis}) > 0" for axis in axes)
    return [f"if {condition}:", f"    {step.function}[({', '.join(axes)},)]({', '.join(arguments)})"]
