"""`accelopt cache verify --all --rerun`: what is right stays, what is wrong goes to quarantine with its reason."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import planting
import pytest
import torch
from planting import Norm

from accelopt_cache import Store
from accelopt_compile.cli import run
from accelopt_compile.records import KernelSource, Record
from accelopt_compile.sites import Site
from tests.cache.samples import experience
from tests.end_to_end.test_proving import scaled


def hostile(seed: KernelSource) -> KernelSource:
    """The seed with a constructor: code that would run when the kernel is loaded."""
    return replace(seed, text=seed.text + "__attribute__((constructor)) void early() {}\n")


def commented(seed: KernelSource) -> KernelSource:
    """The seed under another digest."""
    return replace(seed, text=seed.text + "// a copy\n")


@pytest.fixture
def planted() -> dict[str, str]:
    """Ids of: an honest winner, a wrong one and a hostile one with right digests, a damaged one, a baseline, one of another
    target."""
    with torch.no_grad():
        (site,) = planting.sites_seen(Norm().eval(), torch.randn(6, 64))
    place = planting.bench()

    def put(change: Any = lambda seed: seed, **fields: Any) -> str:
        planting.plant_sites(place, [site], source=change)
        record = next(r for _, r in place.store.iter_records() if r.source and r.source.text == change(seed_of(site)).text)
        if not fields:
            return next(i for i, r in place.store.iter_records() if r == record)
        return place.store.put(replace(record, **fields), site.workload)

    ids = {"honest": put(), "wrong": put(scaled), "hostile": put(hostile), "damaged": put(commented)}
    ids["elsewhere"] = put(target="cpp-nowhere")
    baseline = Record(outcome="baseline", workload=site.workload.digest, target=place.target, binding=site.binding, reason="none")
    ids["baseline"] = place.store.put(baseline, site.workload)
    assert place.store.root is not None
    blob = next(p for p in (place.store.root / "v1" / "blobs").rglob("*") if p.is_file() and b"// a copy" in p.read_bytes())
    blob.write_bytes(blob.read_bytes().replace(b"// a copy", b"// a cOpy"))
    return ids


def seed_of(site: Site) -> KernelSource:
    return planting.bench().backend.seed(site.workload)


@pytest.mark.timeout(240)
def test_what_is_right_stays_and_the_rest_goes_to_quarantine(planted: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Two at a time; exit code 4, one JSON document that names stage and reason; a second run finds nothing wrong. What was
    learned from the wrong kernel is withdrawn with it."""
    wrong = next(r.source for i, r in Store.open(readonly=True).iter_records() if i == planted["wrong"])
    assert wrong is not None
    Store.open().add_experience(replace(experience(), fast=wrong.text))
    code = run(["cache", "verify", "--all", "--rerun", "--jobs", "2", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (4, [planted["honest"]], [planted["baseline"]]) == (code, told["proven"], told["intact"])
    assert {planted[name] for name in ("wrong", "hostile", "damaged")} == set(told["failed"])
    assert "numerics" == told["failed"][planted["wrong"]]["stage"]
    assert ("screen", "the attribute constructor") == tuple(
        told["failed"][planted["hostile"]][part] for part in ("stage", "reason")
    )
    assert "digest is not its name" in told["failed"][planted["damaged"]]["reason"]
    assert [planted["elsewhere"]] == list(told["skipped"])
    assert "it is for cpp-nowhere" in told["skipped"][planted["elsewhere"]]
    assert (True, False) == (told["quarantined"], told["interrupted"])
    store = Store.open()
    assert {planted[name] for name in ("honest", "baseline", "elsewhere")} == {i for _, _, i, _ in store.walk()}
    assert store.root is not None
    kept = [p.name for p in (store.root / "v1" / "quarantine").iterdir()]
    for name, reason in (("wrong", ".numerics."), ("hostile", ".screen.")):
        assert any(entry.startswith(planted[name]) and reason in entry for entry in kept), kept
    assert ["it failed at numerics when it was proven again"] == [
        (entry.withdrawn or "").partition(":")[0] for entry in store.memory()
    ]
    assert 0 == run(["cache", "verify", planted["honest"], "--rerun"])
    assert "1 of 1 record: 1 proven" in capsys.readouterr().out


@pytest.mark.timeout(120)
def test_no_quarantine_only_tells(planted: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """With --no-quarantine nothing is moved; plain lines count the records on stderr."""
    assert 4 == run(["cache", "verify", planted["hostile"], "--rerun", "--no-quarantine"])
    out, err = capsys.readouterr()
    assert f"failed   {planted['hostile'][:12]}  screen: the attribute constructor" in out
    assert "[1/1] failed" in err
    assert planted["hostile"] in {i for _, _, i, _ in Store.open().walk()}


def test_options_that_contradict_are_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    """--all with ids, and --jobs without --rerun."""
    assert 2 == run(["cache", "verify", "--all", "abc"])
    assert "--all and 1 id:" in capsys.readouterr().err
    assert 2 == run(["cache", "verify", "--jobs", "3"])
    assert "--rerun" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.timeout(120)
def test_ctrl_c_keeps_what_was_done(planted: dict[str, str], tmp_path: Path) -> None:
    """Exit code 130 and how far it came. The honest kernels among the records take seconds, wherever their ids put them."""
    with torch.no_grad():
        (site,) = planting.sites_seen(Norm().eval(), torch.randn(6, 64))
    for number in range(6):
        planting.plant_sites(planting.bench(), [site], source=lambda s, n=number: replace(s, text=f"{s.text}// honest {n}\n"))  # type: ignore[misc]
    records = len(list(Store.open().walk()))
    command = [sys.executable, "-m", "accelopt_compile.cli", "cache", "verify", "--all", "--rerun", "--jobs", "1", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (tmp_path / "err").open("w+") as err:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=err, text=True)
        deadline = time.monotonic() + 90
        while f"[1/{records}]" not in (tmp_path / "err").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    said, told = (tmp_path / "err").read_text(), json.loads(out)
    assert (130, True) == (process.returncode, told["interrupted"]), said
    assert 1 <= told["checked"] < told["records"] == records
    assert f"interrupted after {told['checked']} of {records} records" in said
    assert "Nothing is lost" in said and "starts from the first record" in said and "goes on from there" not in said
    assert planted["honest"] in {i for _, _, i, _ in Store.open().walk()}
