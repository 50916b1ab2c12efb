"""`accelopt doctor`: can this machine make and run kernels, and if not, what is the next step."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from accelopt_compile.cli import machine
from accelopt_compile.cli.machine import Finding
from accelopt_compile.cli.output import CacheDirOption, JsonOption, Output, QuietOption, VerboseOption, human_bytes
from accelopt_compile.wording import plural

MARKS = {"ok": "ok", "info": "-", "warn": "WARN", "fail": "FAIL"}


def doctor(
    as_json: JsonOption = False, cache_dir: CacheDirOption = None, quiet: QuietOption = False, verbose: VerboseOption = 0
) -> None:
    """Check interpreter, torch, compilers, backends, threads, store and settings; exit code 1 when something is missing.

    Examples: accelopt doctor   |   accelopt doctor --json
    """
    import accelopt_compile

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    findings = [machine.interpreter(), machine.torch_installed(), machine.compiler(), machine.cpu(), machine.threads()]
    findings += backend_findings()
    findings += [walls(), disassembler(), openmp(), *store_findings(), language_model()]
    settings = settings_in_force(out)
    failed = [f for f in findings if f.state == "fail"]
    out.result(
        {
            "version": accelopt_compile.__version__,
            "ok": not failed,
            "findings": [f.to_json() for f in findings],
            "settings": settings,
        }
    )
    if out.level >= 0:
        show(out, findings, settings)
    for finding in findings:
        if finding.advice:
            found = f"{finding.value}; " if out.level < 0 else ""  # the table has it
            out.line(f"{MARKS[finding.state]} {finding.name}: {found}{finding.advice}", level=LEAST[finding.state])
    out.line(verdict(failed))
    if failed:
        raise typer.Exit(1)


LEAST = {"ok": 0, "info": 0, "warn": -1, "fail": -1}
"""The verbosity from which on the advice of a finding in this state is shown."""


def show(out: Output, findings: Sequence[Finding], settings: Sequence[Mapping[str, Any]]) -> None:
    """The tables of findings and settings; with -v all settings, and what they mean."""
    import accelopt_compile

    rows = [[MARKS[f.state], f.name, f.value] for f in findings]
    out.table(["", "what", "found"], rows, title=f"accelopt {accelopt_compile.__version__}")
    out.line()
    if out.level >= 1:
        out.line("settings")
        for setting in settings:
            out.line(described(setting))
        return
    shown = [s for s in settings if s["source"] != "default"]
    rows = [[s["name"], s["value"], s["source"]] for s in shown]
    out.table(["setting", "value", "from"], rows, title="settings" if shown else "")
    out.line(f"{plural(len(settings) - len(shown), 'setting')} at the default (-v shows all)")


def described(setting: Mapping[str, Any]) -> str:
    """A setting with its value and origin, and below it what it means, in lines that fit the terminal."""
    width = max(40, shutil.get_terminal_size().columns)
    told = f"{setting['name']} = {setting['value']!r} ({setting['source']})"
    return "\n".join([told, *textwrap.wrap(setting["meaning"], width, initial_indent="    ", subsequent_indent="    ")])


def verdict(failed: Sequence[Finding]) -> str:
    """The last line: whether kernels can be made here."""
    if not failed:
        return "kernels can be made here"
    return f"kernels cannot be made here: {', '.join(f.name for f in failed)}"


def backend_findings() -> list[Finding]:
    """One finding a backend. It is a failure only when none is ready: torch.compile then runs Inductor alone."""
    from accelopt_backends.base import Missing, Ready
    from accelopt_compile.cli.backends import probes

    found = []
    answers = probes()
    usable = {name: isinstance(answer, Ready) and answer.rung == "device" for name, answer in answers.items()}
    none_ready = not any(ready for name, ready in usable.items() if name != "reference")
    for name, answer in answers.items():
        if isinstance(answer, Missing):
            state: machine.State = "fail" if none_ready else "info"
            found.append(Finding(name=f"backend {name}", state=state, value=f"missing: {answer.why}", advice=answer.how))
        else:
            value = f"ready, {answer.target}"
            if answer.rung == "simulated":
                value = f"its device is not here: kernels for {answer.target} are proven in simulation and kept as candidates"
            found.append(Finding(name=f"backend {name}", state="ok", value=value))
    return found


def walls() -> Finding:
    """Which walls stand around the processes that run candidates (SECURITY.md)."""
    from accelopt_compile.evaluate.sandbox.walls import NAMES, probe

    found = probe()
    missing = {name: found[name] for name in NAMES if found[name]}
    if not missing:
        return Finding(name="sandbox", state="ok", value=f"all walls stand: {', '.join(NAMES)}")
    advice = "kernels from others are judged without them: " + "; ".join(f"{name}: {why}" for name, why in missing.items())
    standing = ", ".join(name for name in NAMES if not found[name]) or "no walls"
    return Finding(name="sandbox", state="warn", value=f"{standing}; missing: {', '.join(missing)}", advice=advice)


def disassembler() -> Finding:
    """Whether the instructions of built kernels are looked at before they are loaded."""
    from accelopt_backends.cpp.instructions import disassembler as found

    tool = found()
    if tool is not None:
        return Finding(name="disassembler", state="ok", value=tool)
    advice = "install binutils (objdump) or llvm: kernels are then also searched for system calls, clocks and computed jumps"
    return Finding(name="disassembler", state="warn", value="none", advice=advice)


def openmp() -> Finding:
    """OpenMP runtimes once torch is imported, which is when they meet."""
    try:
        import torch
    except ImportError as failure:
        return Finding(name="OpenMP", state="info", value=f"torch cannot be imported: {failure}")
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return Finding(name="OpenMP", state="info", value="this system does not list loaded libraries")
    found = machine.openmp_runtimes(maps)
    return Finding(
        name=found.name,
        state=found.state,
        value=f"{found.value}; torch uses {plural(torch.get_num_threads(), 'thread')}",
        advice=found.advice,
    )


def language_model() -> Finding:
    """Whether the models of the settings can be asked. The server is asked for its list; a call is never made."""
    from accelopt_compile.authors import models_of, server_of, spending_of
    from accelopt_compile.config import settings_from
    from accelopt_compile.errors import AccelOptError

    settings = settings_from()
    wanted = sorted({name for names in models_of(settings).values() for name in names})
    if not wanted:
        return Finding(name="language model", state="info", value="none is set: the built-in proposer searches alone")
    try:
        spending_of(settings)
        client = server_of(replace(settings, llm_deadline_s=min(settings.llm_deadline_s, 10.0)))
        served = client.list_models()
    except AccelOptError as failure:
        return Finding(name="language model", state="warn", value=", ".join(wanted), advice=str(failure))
    value = f"{', '.join(wanted)} at {client.base_url}"
    if served.reason:
        return Finding(name="language model", state="warn", value=value, advice=served.reason)
    if missing := [name for name in wanted if name not in served.ids]:
        known = f"it serves {', '.join(served.ids[:8])}" + (", ..." if len(served.ids) > 8 else "")
        return Finding(name="language model", state="warn", value=value, advice=f"not served: {', '.join(missing)}; {known}")
    return Finding(name="language model", state="ok", value=value)


NETWORK = ("nfs", "nfs4", "cifs", "lustre", "fuse.sshfs", "gpfs", "beegfs")


def store_findings() -> list[Finding]:
    """Where the store is, whether it can be written, what holds it, how full it is."""
    from accelopt_cache.kernel_store import Store
    from accelopt_compile.cli.lookup import place_of

    store = Store.open(readonly=True)  # a store is made by a search, not by asking
    root = store.files.root
    place, why = place_of(root)
    if why:
        advice = "set ACCELOPT_CACHE_DIR to a directory of yours, or pass --cache-dir"
        return [Finding(name="store", state="warn", value=f"{root.named} {why}", advice=advice)]
    value = f"{root.named}: not there yet, the first search makes it" if root.path is None else f"{place}: {holds(store.stats())}"
    free = shutil.disk_usage(place).free
    low = free < 256 << 20
    advice = "free some space" if low else ""
    found = [Finding(name="store", state="warn" if low else "ok", value=f"{value}, {human_bytes(free)} free", advice=advice)]
    kind = filesystem(place)
    advice = "locks on network file systems are slow: keep one store a machine" if kind in NETWORK else ""
    return [*found, Finding(name="file system", state="warn" if advice else "ok", value=kind, advice=advice)]


def holds(counted: Mapping[str, Any]) -> str:
    """What is in a store, from its counts."""
    winners, waiting = (sum(counted[outcome].values()) for outcome in ("winners", "candidates"))
    kept = f"{plural(waiting, 'candidate')}, " if waiting else ""
    left = plural(counted["baselines"], "region")
    return f"{plural(winners, 'kernel')}, {kept}{left} left to Inductor, {human_bytes(counted['bytes'])}"


def filesystem(path: Path) -> str:
    try:
        return machine.filesystem_of(path, Path("/proc/mounts").read_text())
    except OSError:
        return "unknown"


def settings_in_force(out: Output) -> list[dict[str, Any]]:
    """Every setting with its value and where it comes from: an option of this command, [tool.accelopt], an environment variable,
    or the default."""
    from accelopt_compile.config import describe_settings, origins, settings_from

    now, sources = settings_from(call=out.settings), {**origins(), **out.given}
    return [
        {"name": name, "value": getattr(now, name), "source": sources.get(name, "default"), "meaning": meaning}
        for name, _, _, meaning in describe_settings()
    ]
