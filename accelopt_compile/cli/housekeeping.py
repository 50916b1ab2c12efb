"""`accelopt cache dir, stats, rm, gc`: where the store lies, how large it is, and how it gets smaller."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accelopt_compile.cli.lookup import open_store
from accelopt_compile.cli.output import (
    CacheDirOption,
    JsonOption,
    Output,
    QuietOption,
    VerboseOption,
    YesOption,
    confirm,
    human_bytes,
)
from accelopt_compile.wording import plural


def directory(
    as_json: JsonOption = False, cache_dir: CacheDirOption = None, quiet: QuietOption = False, verbose: VerboseOption = 0
) -> None:
    """Print where the store is.

    Example: du -sh "$(accelopt cache dir)"
    """
    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    root = open_store().files.root
    out.line(root.named)
    if root.why:
        out.note(f"it is not used: {root.why}")
    out.result({"dir": root.named, "exists": Path(root.named).is_dir(), "why_not": root.why})


def stats(
    as_json: JsonOption = False, cache_dir: CacheDirOption = None, quiet: QuietOption = False, verbose: VerboseOption = 0
) -> None:
    """Count files and bytes by kind, and winners by target.

    Example: accelopt cache stats --json
    """
    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    found = open_store().stats()
    out.result(found)
    for name, value in flat(found):
        out.line(f"{name:32} {human_bytes(value) if name.endswith('bytes') and isinstance(value, int) else value}")


def flat(data: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested JSON objects as dotted names and values."""
    pairs: list[tuple[str, Any]] = []
    for name, value in data.items():
        pairs += flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return pairs


def rm(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Record ids or their first characters.")],
    yes: YesOption = False,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Remove records; their regions are then tuned anew, or stay with Inductor.

    Example: accelopt cache rm 3fa9 --yes
    """
    from accelopt_compile.cli.lookup import check_gone, full_ids

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    store = open_store(readonly=False)
    chosen = full_ids(store, ids)
    confirm(f"Remove {plural(len(chosen), 'record')}?", yes=yes)
    removed = [record_id for record_id in chosen if store.remove(record_id)]
    if removed:
        out.line(f"removed {plural(len(removed), 'record')}", level=0)
        out.result({"removed": removed})
    check_gone(store, chosen, removed)


def gc(
    max_bytes: Annotated[int, typer.Option(min=0, help="Shrink the store below this size.")] = 5 << 30,
    older_than_days: Annotated[float | None, typer.Option(help="Also drop what was not used for so many days.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Sweep leftovers, then shrink the store; nothing younger than an hour goes.

    Examples: accelopt cache gc --dry-run   |   accelopt cache gc --older-than-days 90 --yes
    """
    from dataclasses import asdict

    from accelopt_cache.prune import collect
    from accelopt_compile.errors import InvalidOption

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    if older_than_days is not None and not older_than_days >= 0:  # click's own limit lets NaN pass
        raise InvalidOption(f"--older-than-days {older_than_days:g}: accepted: a number of days >= 0")
    store = open_store(readonly=False)
    if not dry_run:
        confirm(f"Remove what is old or over the limit from {store.files.root.named}?", yes=yes)
    report = collect(store, max_bytes=max_bytes, older_than_days=older_than_days, dry_run=dry_run)
    out.result(asdict(report))
    if report.skipped:
        out.line(f"nothing was done: {report.skipped}")
        return
    for name in report.removed:
        out.line(name, level=1)
    verb = "would free" if dry_run else "freed"
    out.line(
        f"{verb} {human_bytes(report.freed_bytes)} in {plural(len(report.removed), 'file')}; "
        f"{plural(report.files_after, 'file')} {'stays' if report.files_after == 1 else 'stay'}",
        level=0,
    )
