"""Stored kernels of another environment, and of a store that others can write: proven here first, or not launched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import planting
import pytest
import torch
from planting import Norm

import accelopt_compile
from accelopt_cache import Store, layout
from accelopt_cache.layers import open_layers
from accelopt_compile import pipeline, proving, winners
from accelopt_compile.launch import kernels
from accelopt_compile.records import KernelSource, Record

COMPILER = {"compiler": "somebody else's 1.0"}


def scaled(seed: KernelSource) -> KernelSource:
    """The seed with a result that is 0.1 % too large: fast, deterministic and wrong."""
    text = seed.text.replace(
        "INLINE void put(float* p, vf v) { *(rf*)p = v; }", "INLINE void put(float* p, vf v) { *(rf*)p = v * 1.001f; }"
    )
    assert text != seed.text
    return replace(seed, text=text)


def compiled(model: Any, x: torch.Tensor, **options: Any) -> tuple[str, str]:
    """(outcome, reason) of the model's only region, the result checked against eager."""
    torch._dynamo.reset()
    result = torch.compile(model, backend="accelopt", options=options)(x)
    torch.testing.assert_close(model(x), result)
    ((region,),) = [graph["regions"] for graph in accelopt_compile.explain(structured=True)[-1:]]
    return region["outcome"], region["reason"]


class Gated(torch.nn.Module):
    """A gated GELU between two products: its seed is three times as fast as Inductor's code, so that it is adopted on a
    machine with any load, timed on one thread, whose clock counts no neighbours."""

    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 2 * width), torch.nn.Linear(width, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, h = self.up(x).chunk(2, -1)
        return self.down(torch.nn.functional.gelu(gate, approximate="tanh") * h)


@pytest.fixture
def model_and_input() -> Any:
    with torch.no_grad():
        yield Norm(256).eval(), torch.randn(700, 256)


@pytest.fixture
def gated_and_input(one_thread: None) -> Any:
    with torch.no_grad():
        yield Gated().eval(), torch.randn(300, 64)


@pytest.mark.timeout(200)
def test_a_kernel_of_another_compiler_is_proven_again_once(gated_and_input: Any) -> None:
    """Mode "apply" leaves it and says why; "tune" proves and times it, and later compiles find a record made here."""
    model, x = gated_and_input
    (site,) = planting.plant(model, x, environment=COMPILER)
    outcome, reason = compiled(model, x, mode="apply", min_speedup=1.0)
    assert "MISS" == outcome
    assert 'mode is apply; a stored kernel has to be proven here first (compiler was "somebody else\'s 1.0"' in reason
    assert {} == kernels.statistics()
    outcome, reason = compiled(model, x, mode="tune", min_speedup=1.0, budget_s=60)
    assert ("HIT", True) == (outcome, reason.startswith("proven again: compiler was"))
    place = planting.bench()
    *_, made = place.store.records(site.workload.digest, place.target)
    assert (place.environment, "winner") == (made.environment, made.outcome)
    assert planting.TIMING != made.timing
    assert made.errors is not None
    assert "compiler" in made.provenance["proven_again"]["because"]
    assert ("HIT", "") == compiled(model, x, mode="apply", min_speedup=1.0)


@pytest.mark.timeout(200)
def test_a_kernel_that_is_wrong_here_is_not_adopted(model_and_input: Any) -> None:
    """A record that claims to be proven elsewhere is worth what the evaluator says here."""
    model, x = model_and_input
    (site,) = planting.plant(model, x, environment=COMPILER, source=scaled)
    place = planting.bench(min_speedup=1.0)
    waiting = proving.unproven(place, site.workload.digest, site.binding, max_distance=2.0)
    assert waiting is not None
    said = proving.prove(place, site.workload, site.binding, waiting)
    assert isinstance(said, str)
    assert "refused at numerics" in said
    assert 1 == len(place.store.records(site.workload.digest, place.target))


@pytest.mark.timeout(200)
def test_a_store_that_others_can_write_is_a_layer(gated_and_input: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are proven before the first launch, the proof and the built kernel lie in the user's own store, and what it
    says of graphs or builds is not read."""
    model, x = gated_and_input
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    planting.plant(model, x)
    shared = tmp_path / "accelopt"
    shared.chmod(0o770)
    pipeline._stores.cache_clear()
    outcome, reason = compiled(model, x, mode="apply", min_speedup=1.0)
    assert "MISS" == outcome
    assert f"{shared} can be written by its group" in reason
    before = sorted(p for p in (shared / "v1").rglob("*") if p.is_file())
    outcome, reason = compiled(model, x, mode="tune", min_speedup=1.0, budget_s=60)
    assert ("HIT", True) == (outcome, reason.startswith(f"proven again: {shared} can be written by its group"))
    assert 1 == sum(s["calls"] for s in kernels.statistics().values())
    assert before == sorted(p for p in (shared / "v1").rglob("*") if p.is_file())
    own = Store.open(tmp_path / "mine" / "accelopt")
    assert ["winner"] == [record.outcome for _, record in own.iter_records()]
    assert [p for p in (tmp_path / "mine" / "accelopt" / layout.BUILDS).rglob("*.so") if len(p.stem) == 64]
    assert ("HIT", "") == compiled(model, x, mode="apply", min_speedup=1.0)
    shared.chmod(0o700)
    pipeline._stores.cache_clear()


def remembering(seed: KernelSource) -> KernelSource:
    """A kernel with state where the text's screen does not look."""
    entry = 'extern "C" int accelopt_kernel(void* const*, const long*, long) { return ++calls > 0; }'
    return replace(seed, text=f"namespace {{ int calls; }}\n{entry}\n")


def test_a_stored_kernel_passes_the_object_screen_in_the_users_process() -> None:
    """Nothing in the record tells that it keeps state; what is built from it is refused, and Inductor has the region."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        planting.plant(model, x, source=remembering)
        outcome, reason = compiled(model, x, mode="apply")
    assert "BASELINE" == outcome
    assert "could not be built or loaded: ObjectRefused: the built object is refused: .bss holds" in reason
    assert {} == kernels.statistics()
    assert not [p for p in planting.bench().store.build_dir("x", "y").parents[1].rglob("*.so") if len(p.stem) == 64]


def test_whose_a_store_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours alone: no layers. Writable by a group: below the user's own. No own place: below the memory of this process."""
    root, mine = tmp_path / "root", tmp_path / "mine"
    monkeypatch.setenv("XDG_CACHE_HOME", str(mine))
    own, layers = open_layers(str(root))
    assert (root, ()) == (own.root, layers)
    root.chmod(0o770)
    own, layers = open_layers(str(root))
    assert (mine / "accelopt", [root]) == (own.root, [layer.root for layer in layers])
    (mine / "accelopt").chmod(0o770)
    own, layers = open_layers(str(root))
    assert (None, [root]) == (own.root, [layer.root for layer in layers])


def test_a_search_shares_what_it_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's store gets the results too; its other users will prove them."""
    from accelopt_compile import keeping
    from accelopt_compile.authors import Authors
    from accelopt_compile.events import MemoryLog
    from accelopt_compile.resuming import Place
    from accelopt_compile.search.builtin import BuiltinProposer
    from accelopt_compile.search.task import SearchResult

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    (tmp_path / "accelopt").mkdir()
    (tmp_path / "accelopt").chmod(0o770)
    pipeline._stores.cache_clear()
    place = planting.bench()
    with torch.no_grad():
        (site,) = planting.sites_seen(Norm().eval(), torch.randn(6, 64))
    result = SearchResult(best=None, candidates=(), experiences=(), reason="nothing was faster")
    builtin = Authors(kind="builtin", proposer=BuiltinProposer())
    nowhere = Place(log=MemoryLog(), save=lambda _: None, end=lambda _: None)
    record: Record = keeping.keep(place, site.workload, site.binding, result, builtin, nowhere)
    for store in (place.store, *place.layers):
        assert [record] == [found for _, found in store.iter_records()]
    pipeline._stores.cache_clear()


def test_a_kernel_of_another_processor_waits_for_a_timing_here(model_and_input: Any) -> None:
    """One level of instructions has many makers: what beat Inductor on one of them may lose on another."""
    model, x = model_and_input
    here = planting.bench().environment["device"]
    assert here
    planting.plant(model, x, environment={"device": "another processor"})
    outcome, reason = compiled(model, x, mode="apply", min_speedup=1.0)
    assert "MISS" == outcome
    assert f"device was 'another processor', is {here!r}" in reason


def test_a_kernel_that_was_proven_again_is_built_again() -> None:
    """What another compiler built of the same text was never looked at by the proof made here."""
    model, x = Norm(256).eval(), torch.randn(7, 256)
    with torch.no_grad():
        (site,) = planting.plant(model, x, environment=COMPILER)
    place = planting.bench()
    (old,) = place.store.records(site.workload.digest, place.target)
    later = replace(old, environment={**place.environment, "torch": "9.9"})
    proven = replace(old, environment=dict(place.environment))
    found = [
        Path(winners.built(winners.winner_of(record, site.workload), store=place.store, backend=place.backend).path).parent
        for record in (old, proven, later)
    ]
    assert found[0] != found[1]
    assert found[1] == found[2]  # another PyTorch makes no other code of a kernel's text
