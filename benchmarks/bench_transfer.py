"""Does a kernel found for one model serve another? One Llama is tuned, then relatives of the same sizes are compiled.

Every compile is a fresh process on one store, which starts empty. Llama tunes; each relative then compiles in mode
"apply" (which never searches) and once more in mode "tune". A region of a relative is shared when Llama has a region of
the same signature. Counted: shared regions, those that a stored kernel serves ("hits"), those that are left to Inductor
as Llama's were ("verdicts": nothing better was found, or nothing is to gain; "refused": the backend has no kernel for
them), all others ("unanswered"), and searches (a region that was searched reports the seconds it took).

    python -m benchmarks.bench_transfer --quick
    python -m benchmarks.bench_transfer --budget-s 240

Does not promise anything about models of other sizes, or of another epsilon: that is part of a signature.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks import harness

if TYPE_CHECKING:
    import torch

FIRST = "llama"
RELATIVES = ("mistral", "mistral_window", "qwen2", "qwen3")
SIZES: Mapping[str, Mapping[str, int]] = {
    "tiny": {"hidden": 64, "heads": 4, "kv_heads": 2, "intermediate": 128, "layers": 1, "vocab": 256, "tokens": 32},
    "quick": {"hidden": 256, "heads": 4, "kv_heads": 2, "intermediate": 768, "layers": 2, "vocab": 2048, "tokens": 128},
    "full": {"hidden": 576, "heads": 9, "kv_heads": 3, "intermediate": 1536, "layers": 8, "vocab": 8192, "tokens": 256},
}


def build(name: str, size: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A model of that family and size with random weights, and token ids for it."""
    import torch
    import transformers

    sizes = SIZES[size]
    shape = {
        "hidden_size": sizes["hidden"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "head_dim": sizes["hidden"] // sizes["heads"],
        "intermediate_size": sizes["intermediate"],
        "vocab_size": sizes["vocab"],
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "attn_implementation": "sdpa",
    }
    if name.startswith("mistral"):
        shape["sliding_window"] = sizes["tokens"] // 2 if name == "mistral_window" else None
    family = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}.get(name, "Mistral")

    class LastLogits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = getattr(transformers, f"{family}ForCausalLM")(getattr(transformers, f"{family}Config")(**shape))

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.model(input_ids=input_ids, use_cache=False, logits_to_keep=1).logits
            return logits[:, -1]

    torch.manual_seed(0)
    return LastLogits().eval(), (torch.randint(0, sizes["vocab"], (1, sizes["tokens"])),)


def compile_one(name: str, size: str, *, mode: str, budget_s: float) -> dict[str, Any]:
    """Child: compile one model, compare its result with eager's, and report its regions."""
    import torch

    from accelopt_compile import api

    model, inputs = build(name, size)
    started = time.perf_counter()
    with torch.no_grad():
        compiled: Any = torch.compile(model, backend="accelopt", options={"mode": mode, "budget_s": budget_s, "log": "quiet"})
        result, expected = compiled(*inputs), model(*inputs)
    seconds = time.perf_counter() - started
    stats = api.stats()
    return {
        "first_call_s": round(seconds, 2),
        "worst_error": float((result - expected).abs().max() / expected.abs().max()),
        "regions": [region for graph in api.explain(structured=True) for region in graph["regions"]],
        "calls": stats["calls"],
        "fallbacks": stats["fallbacks"],
        "problems": stats["problems"],
    }


def compare(first: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The regions of a relative against those of the first model: a place in a graph that occurs n times counts once."""
    known = {region["workload"]: (region["outcome"], region["reason"]) for region in first}
    shared = [region for region in other if region["workload"] in known]
    answers = [_answer(region, known[region["workload"]]) for region in shared]
    own = [region for region in other if region["workload"] not in known]
    return {
        "regions": len(other),
        "shared": len(shared),
        **{answer: answers.count(answer) for answer in ("hits", "verdicts", "refused", "unanswered")},
        "searches_of_shared": sum(region["seconds"] > 0 for region in shared),
        "searches": sum(region["seconds"] > 0 for region in other),
        "own": [f"{region['outcome']}: {region['operators']}" for region in own],
    }


def _answer(region: Mapping[str, Any], before: tuple[str, str]) -> str:
    if region["outcome"] in ("HIT", "BASELINE"):
        return "hits" if region["outcome"] == "HIT" else "verdicts"
    return "refused" if (region["outcome"], region["reason"]) == before else "unanswered"


def run(size: str, *, budget_s: float, relatives: Sequence[str] = RELATIVES) -> dict[str, Any]:
    """Tune the first model in one process, compile each relative in two others; what came of each."""
    with tempfile.TemporaryDirectory(prefix="accelopt-transfer-") as scratch:
        environment = {
            "ACCELOPT_CACHE_DIR": os.path.join(scratch, "store"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(scratch, "inductor"),
        }

        def child(name: str, mode: str) -> dict[str, Any]:
            arguments = ["--child", name, "--mode", mode, "--size", size, "--budget-s", str(budget_s)]
            return harness.run_fresh("benchmarks.bench_transfer", *arguments, env=environment)

        first = child(FIRST, "tune")
        show(FIRST, "tune", first, dict(Counter(region["outcome"] for region in first["regions"])))
        found: dict[str, Any] = {FIRST: {"tune": first}}
        for name, mode in [*((n, "apply") for n in relatives), *((n, "tune") for n in relatives)]:
            answer = child(name, mode)
            answer["transfer"] = compare(first["regions"], answer["regions"])
            found.setdefault(name, {})[mode] = answer
            show(name, mode, answer, answer["transfer"])
    return found


def show(name: str, mode: str, answer: Mapping[str, Any], told: Mapping[str, Any]) -> None:
    print(
        f"{name} {mode}: {answer['first_call_s']} s, {answer['calls']} kernel calls, error {answer['worst_error']:.1e}: {told}",
        flush=True,
    )


def summary(found: Mapping[str, Any]) -> dict[str, Any]:
    """Per relative: shared regions of all, how they were answered, and searches by mode."""
    told = {}
    for name, modes in found.items():
        if name != FIRST:
            counts = modes["apply"]["transfer"]
            told[name] = {key: counts[key] for key in ("regions", "shared", "hits", "verdicts", "refused", "unanswered")} | {
                "searches_apply": counts["searches"],
                "searches_of_shared_tune": modes["tune"]["transfer"]["searches_of_shared"],
                "searches_of_own_tune": modes["tune"]["transfer"]["searches"] - modes["tune"]["transfer"]["searches_of_shared"],
            }
    return told


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two narrow layers")
    parser.add_argument("--budget-s", type=float, default=None, help="seconds of search a compile [default: 60 quick, else 240]")
    parser.add_argument("--relatives", default=",".join(RELATIVES), help="comma-separated models")
    parser.add_argument("--size", choices=tuple(SIZES), help=argparse.SUPPRESS)
    parser.add_argument("--child", choices=(FIRST, *RELATIVES), help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=("tune", "apply"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    size = given.size or ("quick" if given.quick else "full")
    budget_s = given.budget_s or (60.0 if given.quick else 240.0)
    if given.child:
        harness.finish("transfer", compile_one(given.child, size, mode=given.mode, budget_s=budget_s))
        return
    found = run(size, budget_s=budget_s, relatives=given.relatives.split(","))
    told = summary(found)
    path = harness.write_result("transfer", {"models": found, "summary": told, "size": dict(SIZES[size])}, quick=given.quick)
    harness.finish("transfer", {**told, "results": str(path)})


if __name__ == "__main__":
    main()
