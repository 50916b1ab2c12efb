"""`accelopt memory ...`: what searches have learned, by slow-fast pair, and how to take it along for fine-tuning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accelopt_compile.cli.lookup import open_store
from accelopt_compile.cli.output import CacheDirOption, JsonOption, Output, QuietOption, VerboseOption, YesOption, confirm
from accelopt_compile.errors import InvalidOption, UsageError
from accelopt_compile.wording import plural, times_text

if TYPE_CHECKING:
    from accelopt_cache.experience_store import StoredExperience
    from accelopt_cache.kernel_store import Store

app = typer.Typer(no_args_is_help=True, help="Look at what searches have learned, search it, export it, forget it.")

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="An experience's id, or the first characters of it (see `accelopt memory ls`).")
]
BackendOption = Annotated[str | None, typer.Option(help="Only of this backend, e.g. cpp.")]
FamilyOption = Annotated[str | None, typer.Option(help="Only of this family, e.g. norm or `norm bf16`.")]
ArchOption = Annotated[str | None, typer.Option(help="Only of this architecture, e.g. x86_64-avx2.")]


@app.command("ls")
def ls(
    backend: BackendOption = None,
    family: FamilyOption = None,
    arch: ArchOption = None,
    withdrawn: Annotated[
        bool, typer.Option("--withdrawn", help="Those that are no longer used, because their kernel proved wrong, and why.")
    ] = False,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """List experiences, the newest first.

    Examples: accelopt memory ls --family norm   |   accelopt memory ls --withdrawn   |   accelopt memory ls --json
    """
    from accelopt_compile.cli.lessons import entry_json, heading, written_by

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    store = open_store()
    every = store.memory(backend, family, arch)
    found = [entry for entry in every if bool(entry.withdrawn) == withdrawn]
    out.result([entry_json(entry) for entry in found])
    rows = []
    for entry in found:
        e = entry.experience
        effect = ["helped" if e.helped else "hurt", times_text(e.speedup, e.basis)]
        last = entry.withdrawn if withdrawn else written_by(e)
        rows.append([entry.id[:12], entry.created[:16], e.family, e.arch, *effect, heading(e), last])
    if rows:
        last = "withdrawn because" if withdrawn else "by"
        out.table(["id", "created", "family", "arch", "its step", "fast/slow", "lesson", last], rows)
    else:
        out.line(nothing(store, withdrawn=withdrawn), level=0)
    if (gone := len(every) - len(found)) and not withdrawn:
        out.line(f"{gone} withdrawn; `accelopt memory ls --withdrawn` says why", level=0)


def nothing(store: Store, *, withdrawn: bool = False) -> str:
    """Why a list is empty, and how it fills."""
    place, held = store.files.root.named, len(store.experience_ids())
    if held:
        return f"none of the {held} experiences in {place} {'is withdrawn' if withdrawn else 'matches'}"
    filled = 'torch.compile(model, backend="accelopt"), `accelopt prewarm` and `accelopt demo`'
    return f"no experiences in {place}; searches fill it: {filled}"


@app.command("show")
def show(
    experience_id: IdArgument,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Show one experience: its lesson, where it is from, and the way from the slow to the fast kernel as a diff.

    Examples: accelopt memory show 3fa9   |   accelopt memory show 3fa9 --json
    """
    from accelopt_compile.cli.lessons import described, entry_json, printable, unified

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    entry = find_entry(open_store(), experience_id)
    diff = unified(entry.experience)
    out.result({**entry_json(entry), "slow": entry.experience.slow, "fast": entry.experience.fast, "diff": diff})
    for name, value in described(entry):
        out.line(f"{name + ':':20} {printable(value)}")
    out.line(printable(f"\n{entry.experience.lesson}\n\n{diff or 'the experience holds no two kernels'}"))


def find_entry(store: Store, prefix: str) -> StoredExperience:
    """The experience with this id or start of an id. Raises UsageError when there is none, or it is damaged."""
    from accelopt_compile.cli.lookup import matching

    (wanted,) = matching(store.experience_ids(), [prefix], noun="experience", where=store.files.root.named, ls="memory ls")
    for entry in store.memory():
        if entry.id == wanted:
            return entry
    raise UsageError(f"experience {wanted} is damaged and not read; `accelopt memory rm {wanted[:12]}` removes it")


@app.command("search")
def search(
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="What a lesson, its title or its plan speaks of.")],
    limit: Annotated[int, typer.Option(min=1, help="How many to show at most.")] = 10,
    backend: BackendOption = None,
    family: FamilyOption = None,
    arch: ArchOption = None,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Find lessons by their words, the best match first.

    Examples: accelopt memory search streaming stores   |   accelopt memory search registers --family norm --json
    """
    from accelopt_compile.cli.lessons import entry_json, heading
    from accelopt_compile.search.recall import by_words, text_of

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    store = open_store()
    held = [entry for entry in store.memory(backend, family, arch) if not entry.withdrawn]
    scores = by_words(words, tuple(text_of(entry.experience) for entry in held))
    found = [(held[i], score) for i, score in list(scores.items())[:limit]]
    out.result([{**entry_json(entry), "score": round(score, 6)} for entry, score in found])
    rows = [
        [e.id[:12], e.experience.family, times_text(e.experience.speedup, e.experience.basis), heading(e.experience, 90)]
        for e, _ in found
    ]
    if rows:
        out.table(["id", "family", "fast/slow", "lesson"], rows)
    elif not held:
        out.line(nothing(store), level=0)
    else:
        out.line(f"none of {plural(len(held), 'experience')} speaks of {' '.join(words)!r}", level=0)


@app.command("export")
def export(
    form: Annotated[
        str, typer.Option("--format", help="`pairs` (slow, fast, speedup, lesson, ...) or `chat` (messages for fine-tuning).")
    ] = "pairs",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write; standard output without it.")
    ] = None,
    min_speedup: Annotated[float, typer.Option(help="Only pairs whose fast kernel is faster by at least this.")] = 1.0,
    backend: BackendOption = None,
    family: FamilyOption = None,
    arch: ArchOption = None,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Export slow-fast pairs as JSON Lines, each pair once, from slow to fast also where a step had made it slower.

    Withdrawn experiences are left out: their fast kernel proved wrong.

    Examples: accelopt memory export -o pairs.jsonl   |   accelopt memory export --format chat --min-speedup 1.2 -o chat.jsonl
    """
    from accelopt_compile.cli.lessons import chat_line, distinct_pairs, pair_line

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    if form not in ("pairs", "chat"):
        raise InvalidOption(f"--format {form!r} does not exist; it is `pairs` or `chat`")
    if as_json and output is None:
        raise UsageError("what is exported is JSON Lines already; leave --json out, or write to a file with -o")
    store = open_store()
    held = store.memory(backend, family, arch)
    pairs = distinct_pairs(held, min_speedup=min_speedup)
    made: list[dict[str, Any]] = [
        pair_line(e) if form == "pairs" else chat_line(e, store.workload(e.workload)) for e in (p.experience for p in pairs)
    ]
    text = "".join(json.dumps(line, sort_keys=True, ensure_ascii=False) + "\n" for line in made)
    if output is None:
        if text:
            out.line(text.removesuffix("\n"))
    else:
        _write(output, text)
        out.result({"pairs": len(pairs), "experiences": len(held), "file": str(output.absolute())})
    told = f"{plural(len(pairs), 'pair')} of {plural(len(held), 'experience')}"
    out.note(told + (f" written to {output}" if output else "") if held else nothing(store))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as failure:
        raise UsageError(
            f"{path} cannot be written: {failure.strerror or failure}; name a file in a directory of yours"
        ) from failure


@app.command("rm")
def rm(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of experiences or their first characters.")],
    yes: YesOption = False,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Forget experiences; no later search is told of them.

    Example: accelopt memory rm 3fa9 --yes
    """
    from accelopt_compile.cli.lookup import check_gone, matching

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    store = open_store(readonly=False)
    known = store.experience_ids()
    chosen = sorted(set(matching(known, ids, noun="experience", where=store.files.root.named, ls="memory ls")))
    confirm(f"Forget {len(chosen)} experience{'s' if len(chosen) != 1 else ''}?", yes=yes)
    removed = [experience_id for experience_id in chosen if store.remove_experience(experience_id)]
    if removed:
        out.line(f"forgot {len(removed)}", level=0)
        out.result({"removed": removed})
    check_gone(store, chosen, removed)
