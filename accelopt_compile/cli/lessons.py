"""Experiences as people read them and as fine-tuning does. Pure: nothing here opens, prints or writes."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from accelopt_compile.records import Experience, Node, TensorSpec, Workload
from accelopt_compile.wording import times_text

if TYPE_CHECKING:
    from accelopt_cache.experience_store import StoredExperience

SYSTEM = (
    "You make kernels faster without changing what they compute. "
    "You are given a workload and a correct kernel for it; answer with the whole faster kernel in one code block."
)


def entry_json(entry: StoredExperience) -> dict[str, Any]:
    """An experience without its kernels: what a listing shows."""
    e = entry.experience
    texts = {name: getattr(e, name) for name in ("backend", "family", "arch", "workload", "title", "lesson")}
    choices = {name: dict(getattr(e, name)) for name in ("change", "structure", "tunables", "origin")}
    about = {"id": entry.id, "created": entry.created, "withdrawn": entry.withdrawn}
    return {**about, **texts, **choices, "helped": e.helped, "speedup": e.speedup, "basis": e.basis}


def heading(experience: Experience, limit: int = 60) -> str:
    """Its title, else its lesson's first words, in one line without control characters."""
    text = " ".join(printable(experience.title.strip() or experience.lesson[: limit * 4]).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def printable(text: str) -> str:
    """The text without control characters, which a terminal would obey; a model or a stranger may have written it."""
    return re.sub(r"[^\S \n\t]|[\x00-\x08\x0e-\x1f\x7f-\x9f]", " ", text)


def written_by(experience: Experience) -> str:
    """The model that told it, else its proposer, else whoever wrote the fast kernel; "-" where nobody said."""
    return next((found for name in ("model", "proposer", "fast_by") if (found := experience.origin.get(name, ""))), "-")


def described(entry: StoredExperience) -> list[tuple[str, str]]:
    """(name, text) of everything an experience says but its lesson and its kernels."""
    e = entry.experience
    step = "the step from slow to fast" if e.helped else "undoing the step, which had led from fast to slow"
    choices = {**{f"structure.{k}": v for k, v in e.structure.items()}, **{f"tunable.{k}": v for k, v in e.tunables.items()}}
    lines = [
        ("experience", entry.id),
        *([("withdrawn", entry.withdrawn)] if entry.withdrawn else []),
        ("created", entry.created),
        ("of", f"{e.family}, {e.backend}, {e.arch}"),
        ("workload", e.workload),
        *([("title", e.title)] if e.title else []),
        ("gained", f"{times_text(e.speedup, e.basis, 3)} by {step}"),
    ]
    pairs = (("change", e.change), ("fast kernel", choices))
    lines += [(name, ", ".join(f"{k}={v}" for k, v in sorted(values.items()))) for name, values in pairs if values]
    return lines + [(f"from {name}", value) for name, value in sorted(e.origin.items())]


def unified(experience: Experience) -> str:
    """The way from the slow to the fast kernel; empty where one of them is not kept."""
    if not experience.slow or not experience.fast:
        return ""
    slow, fast = experience.slow.splitlines(), experience.fast.splitlines()
    return "\n".join(difflib.unified_diff(slow, fast, "slow", "fast", lineterm=""))


# ---------------------------------------------------------------- for fine-tuning


def distinct_pairs(entries: Sequence[StoredExperience], *, min_speedup: float) -> list[StoredExperience]:
    """Those that hold two different kernels, the fast one faster by `min_speedup` or more, each pair of texts once (by its
    first entry). None that is withdrawn, and none whose speedup nobody measured: what is trained on them would take a model of a
    device for the device."""
    kept: dict[tuple[str, str], StoredExperience] = {}
    for entry in entries:
        e = entry.experience
        pair = (e.slow.strip(), e.fast.strip())
        if not entry.withdrawn and e.basis == "measured" and all(pair) and pair[0] != pair[1] and e.speedup >= min_speedup:
            kept.setdefault(pair, entry)
    return list(kept.values())


def pair_line(e: Experience) -> dict[str, Any]:
    """A pair as it is. `helped` is False where the step that was tried led from fast to slow."""
    texts = {name: getattr(e, name) for name in ("slow", "fast", "lesson", "title", "family", "backend", "arch", "workload")}
    return {**texts, "speedup": e.speedup, "helped": e.helped}


def chat_line(e: Experience, workload: Workload | None) -> dict[str, Any]:
    """A pair as a conversation: the slow kernel is asked about, the fast one answers."""
    language = "python" if _is_python(e.fast) else e.backend
    what = workload_text(workload) if workload is not None else f"(not stored; its digest is {e.workload})"
    asked = (
        f"Target: {e.backend} on {e.arch}\nKind of work: {e.family}\n\nWorkload:\n{what}\n\nKernel:\n{_fenced(e.slow, language)}"
    )
    turns = (("system", SYSTEM), ("user", asked), ("assistant", _fenced(e.fast, language)))
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def workload_text(workload: Workload) -> str:
    """A workload as assignments that a person can read: types are dtype[shape], with strides where given."""
    lines = [f"i{i}: {_type(spec)} strides [{_joined(spec.strides)}]" for i, spec in enumerate(workload.inputs)]
    lines += [f"n{i} = {_call(node)} -> {', '.join(map(_type, node.outputs))}" for i, node in enumerate(workload.nodes)]
    returned = [f"{ref}: {_type(s)}" for ref, s in zip(workload.outputs, workload.output_specs, strict=False)]
    return "\n".join([*lines, f"return {', '.join(returned)}"])


def _call(node: Node) -> str:
    given = [_argument(arg) for arg in node.args] + [f"{name}={_argument(arg)}" for name, arg in node.kwargs]
    return f"{node.op}({', '.join(given)})"


def _argument(arg: Any) -> str:
    if isinstance(arg, tuple | list):
        return f"[{', '.join(map(_argument, arg))}]"
    return str(getattr(arg, "expr", getattr(arg, "dtype", arg)))


def _type(spec: TensorSpec) -> str:
    return f"{spec.dtype}[{_joined(spec.shape)}]"


def _joined(dims: Sequence[object]) -> str:
    return ", ".join(map(str, dims))


def _fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _is_python(text: str) -> bool:
    """Whether a kernel is Python: several backends write it."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
