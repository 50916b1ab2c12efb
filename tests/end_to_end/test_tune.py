"""Mode "tune": searches inside a budget, what they leave in the store, and who is let in."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import planting
import pytest
import torch
from planting import Norm

import accelopt_compile
from accelopt_compile import proving, temporary
from accelopt_compile.api import PrewarmReport
from accelopt_compile.config import settings_from
from accelopt_compile.evaluate.sandbox import forkserver
from accelopt_compile.pipeline import bench_for
from accelopt_compile.search.budget import Budget
from accelopt_compile.tuning import tune as search
from tests.kernels.workloads import task


def tune(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend="accelopt", options={"mode": "tune", **options})


def outcomes() -> list[tuple[str, str]]:
    """(outcome, reason) of every region compiled so far."""
    return [(r["outcome"], r["reason"]) for graph in accelopt_compile.explain(structured=True) for r in graph["regions"]]


@pytest.mark.timeout(300)
def test_search_leaves_a_verdict() -> None:
    """A first compile searches and stores a winner or "baseline, because"; a second one only looks up."""
    model, x = Norm(256).eval(), torch.randn(512, 256)
    with torch.no_grad():
        report = accelopt_compile.prewarm(model, x, budget_s=60, rounds=1, plans_per_candidate=1)
        assert isinstance(report, PrewarmReport)
        assert {"TUNED", "BASELINE"} >= {region.outcome for region in report.regions}
        torch._dynamo.reset()
        again = accelopt_compile.prewarm(model, x, budget_s=60)
        assert {"HIT", "BASELINE"} >= {region.outcome for region in again.regions}
        assert again.compiles[0].warm
        assert 0 == sum(region.seconds for region in again.regions)
        same = accelopt_compile.prewarm(model, x, budget_s=60)
        assert () == same.compiles
        assert "nothing was compiled: this process has compiled all of it" in str(same)
        torch.testing.assert_close(model(x), tune(model, budget_s=0)(x))


@pytest.mark.timeout(300)
def test_the_option_cache_dir_moves_all_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled baselines too: where the default store cannot be written, nobody hears of it."""
    forkserver.stop()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "file" / "store"))
    mine = tmp_path / "mine"
    with torch.no_grad():
        tune(Norm(256).eval(), budget_s=30, rounds=1, plans_per_candidate=1, cache_dir=str(mine))(torch.randn(64, 256))
    assert list((mine / "v1" / "baselines").rglob("*.so"))
    assert not (tmp_path / "file").is_dir()
    forkserver.stop()


@pytest.mark.timeout(100)
def test_without_room_for_temporary_files_a_search_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its region is a MISS with the reason, and nothing is raised that would cost others their kernels; so is a proof."""
    place = planting.bench()
    work = task("layer_norm")
    with torch.no_grad():
        (site,) = planting.plant(Norm(256).eval(), torch.randn(64, 256))
    (record,) = place.store.records(site.workload.digest, place.target)
    shutil.rmtree(Path(temporary.Folder("search").name).parent)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    found = search(place, work.workload, work.binding, Budget(seconds=20, clock=time.monotonic))
    assert (None, True) == (found.record, "No such file or directory" in found.reason)
    unproven = proving.Unproven(record=record, why="another compiler")
    assert "it could not be proven: [Errno 2]" in str(proving.prove(place, site.workload, site.binding, unproven))


def test_a_deadline_of_the_user_s_ends_a_search() -> None:
    """What a handler of a signal raises is not for us to swallow, though every failure of ours is, and a disk's too."""

    def late(*_: Any) -> None:
        raise TimeoutError("the user's deadline")

    before = signal.signal(signal.SIGUSR1, late)
    timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        with torch.no_grad(), pytest.raises(Exception, match="the user's deadline"):
            tune(Norm(256).eval(), budget_s=60)(torch.randn(512, 256))
        assert signal.getsignal(signal.SIGUSR1) is late
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, before)


def test_no_budget_no_search() -> None:
    """With a budget of 0 nothing is searched, and the region is not marked as searched."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        torch.testing.assert_close(model(x), tune(model, budget_s=0)(x))
    assert [("MISS", "the time budget is spent")] == outcomes()


@pytest.mark.timeout(300)
def test_a_search_cut_short_is_gone_on_with() -> None:
    """Two kernels, neither faster, are too few to leave the region to Inductor for good: no record, and the next one goes on."""
    work = task("layer_norm")
    bench = bench_for(settings_from(call={"threads": 1, "seed": 1, "min_speedup": 50.0}))
    first, second = (
        search(bench, work.workload, work.binding, Budget(candidates=count, clock=time.monotonic)) for count in (2, None)
    )
    assert first.record is None
    assert "the candidate budget is spent" in first.reason
    assert second.record is not None
    assert "baseline" == second.record.outcome
    assert 2 < second.record.provenance["evaluated"]


def test_an_empty_batch_is_not_searched() -> None:
    """A call that computes nothing can be timed, and won."""
    model, x = Norm().eval(), torch.randn(0, 64)
    with torch.no_grad():
        torch.testing.assert_close(model(x), tune(model)(x))
    assert {("BASELINE", "there is nothing to compute at such sizes")} == set(outcomes())


def test_no_regions_no_search() -> None:
    """`max_regions` bounds how many regions one compile searches."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        tune(model, max_regions=0)(x)
    assert [("MISS", "max_regions is 0")] == outcomes()


def test_region_that_another_process_searches() -> None:
    """A region under somebody's claim goes to Inductor at once, and the report names the process."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        place = planting.bench()
        (site,) = planting.sites_seen(model, x)
        with held(place, site.workload.digest):
            torch.testing.assert_close(model(x), tune(model)(x))
    ((outcome, reason),) = outcomes()
    assert "MISS" == outcome
    assert "is tuning this region" in reason


def test_waiting_for_another_process() -> None:
    """With `wait` the other search is waited for, within the budget, and its result is used."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        place = planting.bench()
        (site,) = planting.sites_seen(model, x)
        with held(place, site.workload.digest) as release:
            threading.Timer(0.5, lambda: (planting.plant_sites(place, [site]), release())).start()
            torch.testing.assert_close(model(x), tune(model, wait=True, budget_s=30)(x))
    assert ["HIT"] == [outcome for outcome, _ in outcomes()]


class held:
    """Another searcher: a thread of its own that holds the claim until it is released."""

    def __init__(self, place: Any, digest: str) -> None:
        self.ready, self.done = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._hold, args=(place, digest))

    def _hold(self, place: Any, digest: str) -> None:
        with place.store.claim(digest, place.target):
            self.ready.set()
            self.done.wait(60)

    def __enter__(self) -> Any:
        self.thread.start()
        self.ready.wait(10)
        return self.done.set

    def __exit__(self, *failure: object) -> None:
        self.done.set()
        self.thread.join()


def test_prewarm_refuses_a_wrong_name() -> None:
    """A misspelt setting is the caller's error, before anything is compiled."""
    with pytest.raises(accelopt_compile.AccelOptError, match="did you mean 'rounds'"):
        accelopt_compile.prewarm(Norm(), torch.randn(2, 64), round=3)


def test_prewarm_leaves_buffers_and_random_numbers_alone() -> None:
    """Running means are the training's, not those of an example."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.Dropout())
    x = torch.full((4, 64), 1e3)
    state, before = torch.get_rng_state(), [value.clone() for value in model.buffers()]
    accelopt_compile.prewarm(model, x.requires_grad_(), backward=True, mode="apply")
    assert all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))
    assert torch.equal(state, torch.get_rng_state())
    assert x.grad is None


class Counting(torch.nn.Module):
    """Puts another tensor in the place of a buffer at each call, and has one that cannot be written to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(()))
        self.register_buffer("ones", torch.ones(1).expand(4, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n = self.n + 1
        return torch.relu(x + self.n) * self.ones


def test_prewarm_takes_buffers_of_any_kind() -> None:
    """Replaced, expanded, made under inference mode, not yet made; and a model without anything to learn."""
    counting, x = Counting(), torch.randn(4, 64)
    accelopt_compile.prewarm(counting, x, mode="apply")
    assert 0 == counting.n
    lazy = torch.nn.Sequential(torch.nn.LazyLinear(64), torch.nn.LazyBatchNorm1d())
    accelopt_compile.prewarm(lazy, x, mode="apply")
    with torch.inference_mode():
        counting.ones = torch.ones(4, 64)
    accelopt_compile.prewarm(counting, x, mode="apply")
    assert accelopt_compile.prewarm(torch.nn.Linear(64, 64).requires_grad_(False), x, backward=True, mode="apply").compiles
    for strange in (torch.ones(4).to(torch.float8_e4m3fn), torch.eye(4).to_sparse(), torch.ones(4, device="meta")):
        layer = torch.nn.Linear(64, 64)
        layer.register_buffer("strange", strange)
        accelopt_compile.prewarm(layer, x, mode="apply")
        assert strange is layer.strange
    norm = torch.nn.BatchNorm1d(64).eval()
    pending = norm(x.requires_grad_())
    accelopt_compile.prewarm(norm, x, mode="apply")
    pending.sum().backward()


def test_prewarm_with_backward_leaves_gradients_alone() -> None:
    """Prewarming a training step tunes the backward too and gives the parameters' gradients back as they were."""
    model, x = Norm(), torch.randn(6, 64)
    model.weight.grad = torch.ones(64)
    report = accelopt_compile.prewarm(model, x, backward=True, mode="apply")
    assert torch.equal(torch.ones(64), model.weight.grad)
    assert model.up.weight.grad is None
    assert 2 <= len(report.regions)
