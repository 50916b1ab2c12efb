"""How counts, regions and reasons are put into words, the same everywhere: in the log, in `explain` and on the command line."""

from __future__ import annotations

import re

from accelopt_compile.records import Basis, Workload

_SHAPELESS = {
    "reshape",
    "permute",
    "expand",
    "slice",
    "select",
    "convert_element_type",
    "clone",
    "full",
    "iota",
    "cat",
    "unsqueeze",
}


def plural(count: int, noun: str, many: str = "") -> str:
    """A count with its noun; `many` is the form for all counts but 1 where an s does not make it.

    >>> plural(1, "record"), plural(0, "record"), plural(3, "entry", "entries")
    ('1 record', '0 records', '3 entries')
    """
    return f"{count} {noun if count == 1 else many or noun + 's'}"


def times_text(speedup: float, basis: Basis = "measured", digits: int = 2) -> str:
    """A speedup, with a word where nobody measured it. Whatever prints one goes through here.

    >>> times_text(1.424), times_text(1.424, "estimated")
    ('1.42x', 'estimated 1.42x')
    """
    return f"{'estimated ' if basis == 'estimated' else ''}{speedup:.{digits}f}x"


def is_or_are(count: int) -> str:
    """The verb that goes with a count."""
    return "is" if count == 1 else "are"


def operators(workload: Workload, limit: int = 6) -> str:
    """The workload's computing operators in short, in order of first use: "pow mean add rsqrt mul"."""
    names = dict.fromkeys(node.op.split(".")[1] for node in workload.nodes)
    kept = [n for n in names if n not in _SHAPELESS] or list(names)
    return " ".join(kept[:limit]) + (f" +{len(kept) - limit}" if len(kept) > limit else "")


def region(workload: Workload) -> str:
    """A region as a message names it: its operators, and the start of its digest, which finds it in logs and in the store."""
    return f"{operators(workload)} {workload.digest[:8]}"


_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""What would change how the text around it is read, or cannot be written down at all."""


def visible(text: object) -> str:
    """`text` with every character that hides, turns or breaks text written as its number."""
    return _UNSEEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", str(text).replace("\r\n", "\n"))


def said_once(reason: str) -> str:
    """A reason in one line that says nothing twice: errors that wrap each other repeat what they wrap.

    >>> said_once("search failed: search failed: the referee died\\nkilled")
    'search failed: the referee died; killed'
    >>> said_once("no winner, because the time is up (the time is up)")
    'no winner, because the time is up'
    """
    text = "; ".join(" ".join(line.split()) for line in reason.splitlines() if line.strip())
    text = visible(text)  # a server's words end here, and on somebody's terminal
    text = re.sub(r" \(([^()]*)\)", lambda m: "" if m[1] in text[: m.start()] else m[0], text)
    kept: list[str] = []
    for clause in re.split(r"(?<=[:;]) ", text):
        bare = clause.rstrip(":;")
        if bare not in [k.rstrip(":;") for k in kept]:
            kept.append(clause)
    return " ".join(kept).rstrip(":;")


def candidates_text(count: int, target: str) -> str:
    """What is said of kernels that are kept and not adopted."""
    proven = f"{plural(count, 'kernel')} proven in simulation for {target}"
    return f"{proven}; until `accelopt cache promote` decides on that device, Inductor runs the region"


def shortened(text: str, limit: int = 300) -> str:
    """The text in one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
