"""Whether a host function's launches fit its device functions: arguments, compile-time constants, options, and what each launch
writes. A launch that stores through an input is refused, and so is an output that no launch stores to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from accelopt_backends.triton.arithmetic import INTERPRETED
from accelopt_backends.triton.source import Assign, Launch, Leave, Program, Scratch, Step
from accelopt_backends.triton.stores import stored
from accelopt_backends.triton.syntax import Found, dotted, named_badly

TUNABLE = re.compile(r"[A-Z][A-Za-z0-9_]{0,39}")
MOST_TUNABLES = 16
MOST_WARPS, MOST_STAGES, MOST_CTAS = 32, 16, 16


def misfits(program: Program, functions: Mapping[str, ast.FunctionDef], order: Sequence[str], line: int) -> Iterator[Found]:
    """What parse cannot see of a host function, which stands on `line`. `order` has callees before their callers."""
    yield from _signature(program, line)
    yield from _names(program, line)
    for step in program.steps:
        if isinstance(step, Launch):
            yield from _launch(step, functions[step.function], program)
    yield from _written(program, functions, stored(functions, order), line)


def _signature(program: Program, line: int) -> Iterator[Found]:
    names = [name for name, _ in program.tensors]
    inputs = sum(name.startswith("in") for name in names)
    wanted = [f"in{i}" for i in range(inputs)] + [f"out{i}" for i in range(len(names) - inputs)]
    if names != wanted or inputs == len(names):
        yield line, "the tensors are not in0, in1, ..., out0, ...", "name inputs, then outputs, in the workload's order"
    if not all(re.fullmatch(r"s\d{1,6}", name) for name in program.symbols):
        yield line, "the sizes are not s0, s1, ...", "name them as the workload does, in its order"
    for name in program.tunables:
        if not TUNABLE.fullmatch(name) or name == INTERPRETED:
            yield line, f"a tunable named {name[:40]!a}", "letters, digits and _, a capital first, at most 40"
    if len(program.tunables) > MOST_TUNABLES:
        yield line, f"{len(program.tunables)} tunables", f"at most {MOST_TUNABLES}"


def _names(program: Program, line: int) -> Iterator[Found]:
    """Names keep what they stand for; pointers are arguments of launches and nothing else."""
    given = {name for name, _ in program.tensors} | set(program.symbols) | set(program.tunables)
    pointers = {name for name, _ in program.tensors} | {s.name for s in program.steps if isinstance(s, Scratch)}
    for step in program.steps:
        if isinstance(step, Assign | Scratch):
            if step.name in given or (isinstance(step, Assign) and step.name in pointers):
                yield _line(step, line), f"{step.name} gets another meaning", "use a new name"
            elif (why := named_badly(step.name)) is not None:
                yield _line(step, line), why, "use another name"
        for value in _expressions(step):
            for part in ast.walk(value):
                if isinstance(part, ast.Name) and part.id in pointers:
                    yield part.lineno, f"arithmetic on the tensor {part.id}", "pass it to a launch; offsets are worked out there"
                if isinstance(part, ast.Name) and part.id == INTERPRETED:
                    hint = f"pass it to a launch as a constant of its own: WIDE={INTERPRETED}"
                    yield part.lineno, f"{INTERPRETED} decides what is launched", hint


def _expressions(step: Step) -> list[ast.expr]:
    """A step's integer expressions, without arguments and constants that are one name."""
    match step:
        case Assign(value=value):
            return [value]
        case Scratch(elements=elements):
            return [elements]
        case Leave(condition=condition):
            return [condition]
        case Launch():
            args = [a for a in step.args if not isinstance(a, ast.Name)]
            constants = [c for c in step.constants.values() if not isinstance(c, ast.Name)]
            return [*step.grid, *args, *constants, *step.options.values()]


def _line(step: Step, line: int) -> int:
    found = [value.lineno for value in _expressions(step)]
    return found[0] if found else line


def _launch(step: Launch, function: ast.FunctionDef, program: Program) -> Iterator[Found]:
    constant = {a.arg for a in function.args.args if a.annotation is not None}
    names = [a.arg for a in function.args.args]
    plain = [name for name in names if name not in constant]
    optional = set(names[len(names) - len(function.args.defaults) :])
    if names[: len(plain)] != plain:
        yield function.lineno, f"{step.function} has a plain parameter behind a tl.constexpr one", "put the constants last"
    elif len(step.args) != len(plain):
        hint = f"{step.function} takes {', '.join(plain) or 'none'} by position, its constants by name"
        yield step.line, f"{len(step.args)} arguments for {len(plain)} parameters of {step.function}", hint
    for name in step.constants.keys() - constant:
        yield step.line, f"{step.function} has no constant {name[:64]}", f"it has {', '.join(sorted(constant)) or 'none'}"
    for name in sorted(constant - step.constants.keys() - optional):
        yield step.line, f"the constant {name} of {step.function} is missing", f"write {name}=value in the launch"
    for name, value in step.options.items():
        yield from _option(name, value, program)


def _option(name: str, value: ast.expr, program: Program) -> Iterator[Found]:
    """Options by value, as far as a number or a tunable gives it."""
    choices: Sequence[int] = ()
    if isinstance(value, ast.Name):
        choices = program.tunables.get(value.id, ())
    elif isinstance(value, ast.Constant) and isinstance(value.value, int):
        choices = (value.value,)
    most = {"num_warps": MOST_WARPS, "num_stages": MOST_STAGES, "num_ctas": MOST_CTAS}[name]
    power = name != "num_stages"
    if any(not (power <= c <= most) or (power and c & (c - 1)) for c in choices):
        yield value.lineno, f"{name} of {list(choices)}", f"{'a power of two' if power else 'a number'} up to {most}"


def _written(
    program: Program, functions: Mapping[str, ast.FunctionDef], through: Mapping[str, frozenset[str]], line: int
) -> Iterator[Found]:
    written: set[str] = set()
    for step in (s for s in program.steps if isinstance(s, Launch)):
        for parameter, given in zip(functions[step.function].args.args, step.args, strict=False):
            name = dotted(given)
            if parameter.arg in through[step.function]:
                written.add(name)
                if name.startswith("in") and name in dict(program.tensors):
                    yield (
                        step.line,
                        f"{step.function} stores through {parameter.arg}, which is the input {name}",
                        "inputs stay as they are",
                    )
    for name, _ in program.tensors:
        if name.startswith("out") and name not in written:
            yield line, f"no launch stores to {name}", "write every element of every output"
