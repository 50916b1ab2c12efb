"""Paper mode does what AccelOpt says (arXiv 2511.15915, Algorithms 1 and 2): a test for each line of its checklist under
search, agents, memory, fixer and accounting. Worlds are simulated; the loop, the agents and the prompts are the real ones."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache

from accelopt_compile.events import MemoryLog
from accelopt_compile.llm.client import ROLES, Reply, Request
from accelopt_compile.llm.prices import load_prices
from accelopt_compile.llm.prompts import front_matter, prompt
from accelopt_compile.llm.scripted import ScriptedClient
from accelopt_compile.llm.spending import MeteredClient, Spending
from accelopt_compile.records import Candidate
from accelopt_compile.search import SearchResult, SearchSettings, SearchState
from accelopt_compile.search.agents import AgentProposer
from accelopt_compile.search.selection import Group, paper_beam, speed, teaching_pairs
from accelopt_compile.search.simulated_model import SimulatedModel
from accelopt_compile.search.state import candidate_from
from tests.search.test_agents import MODELS, Heard
from tests.search.worlds import World, candidate, experience

SMALL = replace(SearchSettings.preset("paper"), beam_width=3, plans_per_candidate=4, rounds=4)


@cache
def paper_run(fixes: int = 0) -> tuple[World, SearchResult, Heard]:
    """A run by the paper's rules with everything that was asked; looked at by several tests."""
    model = Heard(SimulatedModel())
    settings = replace(SMALL, fix_attempts=fixes, rounds=12 if fixes else SMALL.rounds)  # long enough for broken kernels
    world = World(proposer=AgentProposer(ScriptedClient(model), models=MODELS), settings=settings, log=MemoryLog())
    return world, world.run(), model


def block(text: str, heading: str) -> str:
    """The code block under a heading of a prompt."""
    found = re.search(r"```\w*\n(.*?)\n```", text.partition(f"## {heading}\n")[2], re.DOTALL)
    assert found is not None
    return found[1]


# ---------------------------------------------------------------- search


def test_beam_plans_samples_and_rounds_are_the_papers() -> None:
    """B, N, K, T: 6/12/2/16 as for NKI in `paper` and `full`, 2/4/2/16 as for Triton by default; each can be set."""
    presets = [SearchSettings.preset(name) for name in ("paper", "default")]
    dials = [(s.beam_width, s.plans_per_candidate, s.attempts_per_plan, s.rounds) for s in presets]
    assert [(6, 12, 2, 16), (2, 4, 2, 16)] == dials
    _, result, model = paper_run()
    assert 4 == result.rounds
    assert Counter({"0/0#0": 1}) <= Counter(r.call for r in model.asked("planner"))


def test_the_first_round_expands_one_verified_seed() -> None:
    """Round 0 asks for N plans on the seed and K kernels a plan, nothing else; the seed was evaluated before."""
    world, _, model = paper_run()
    planned = [r for r in model.asked("planner") if r.call.startswith("0/")]
    written = [r for r in model.asked("executor") if r.call.startswith("0/")]
    seed = world.task.backend.seed(world.task.workload)
    assert 4 == len(planned)
    assert 4 * 2 == len(written)
    assert {seed.text.strip()} == {block(r.user, "Kernel") for r in (*planned, *written)}
    assert ["seed", "verdict"] == [e["kind"] for e in world.log.events()][:2]


def test_a_plan_is_one_step_and_goes_to_its_executors_word_for_word() -> None:
    """The planner is asked for one step; each plan's text stands in the prompts of its K executors."""
    world, _, model = paper_run()
    assert all("A plan is one step" in r.user for r in model.asked("planner"))
    plans = {e["call"]: [p["text"] for p in e["reply"]] for e in world.log.events() if e["kind"] == "plans"}
    for request in model.asked("executor"):
        parent, _, index = request.call.partition("#")[0].rpartition("/")
        assert plans[parent][int(index)] in request.user.partition("## Step")[2]


def test_the_next_beam_is_the_papers_choice() -> None:
    """The fastest right kernel of each plan, the B fastest of these; parents only fill what is left."""
    world, result, _ = paper_run()
    kernels = {c.id: c for c in result.candidates}
    beams = [tuple(e["beam"]) for e in world.log.events() if e["kind"] == "round"]
    assert (0,) == beams[0]
    for number, (before, after) in enumerate(itertools.pairwise(beams)):
        expected = paper_beam([kernels[i] for i in before], groups_of(world, result, number, before), 3)
        assert tuple(c.id for c in expected) == after


def groups_of(world: World, result: SearchResult, number: int, beam: tuple[int, ...]) -> list[Group]:
    """The groups of a round, from the log: each plan of each beam slot with the kernels that came of it."""
    by_source: dict[str, Candidate] = {c.source.text: c for c in reversed(result.candidates)}
    groups, seen = [], {c.source.text for c in result.candidates if c.parent is None}
    events = {(e["kind"], e["call"]): e for e in world.log.events() if e["kind"] in ("plans", "attempts")}
    for earlier in range(number + 1):
        for slot in range(3):
            plans = events.get(("plans", f"{earlier}/{slot}"))
            for index in range(len(plans["reply"]) if plans else 0):
                texts = [a["text"] for a in events["attempts", f"{earlier}/{slot}/{index}"]["reply"] if "text" in a]
                fresh = [t for t in dict.fromkeys(texts) if t not in seen]
                seen.update(fresh)
                children = tuple(by_source[t] for t in fresh if t in by_source)
                if earlier == number:
                    parent = result.candidates[beam[slot]]
                    groups.append(Group(parent=parent, plan=children[0].plan if children else parent.plan, children=children))  # type: ignore[arg-type]
    return groups


def test_a_parent_only_fills_empty_slots_unless_the_search_is_elitist() -> None:
    """The same round by both rules: `paper` lets the beam get slower, `elitist` does not."""
    from accelopt_compile.search.selection import elitist_beam

    parent, slower = candidate(0, 1.5), candidate(1, 1.2)
    groups = [Group(parent=parent, plan=slower.plan, children=(slower,)), Group(parent=parent, plan=slower.plan, children=())]  # type: ignore[arg-type]
    assert [1, 0] == [c.id for c in paper_beam([parent], groups, 2)]
    assert [0, 1] == [c.id for c in elitist_beam([parent], groups, 2)]


def test_the_result_is_the_best_of_all_rounds_proven_and_timed_anew() -> None:
    """The winner is the fastest of the whole run, and it had a full evaluation at the end."""
    world, result, _ = paper_run()
    assert result.best is not None
    assert max(result.candidates, key=speed).source == result.best.source
    assert [result.best.id] == [e["candidate"] for e in world.log.events() if e["kind"] == "final"]
    assert "full" == [e["effort"] for e in world.log.events() if e["kind"] == "verdict"][-1]


# ---------------------------------------------------------------- agents


def test_the_planner_sees_workload_kernel_profile_and_memory() -> None:
    """All four are in its prompt, the profile in another order for each sample of one parent."""
    _, result, model = paper_run()
    planned = model.asked("planner")
    for heading in ("Workload", "Kernel", "Profile"):
        assert all(f"## {heading}\n" in r.user for r in planned)
    profiles = [r.user.partition("## Profile\n")[2].partition("## Task")[0].strip() for r in planned if r.call.startswith("0/0")]
    assert 1 == len({tuple(sorted(p.splitlines())) for p in profiles})
    assert 1 < len(set(profiles))
    assert any(e.lesson in r.system for e in result.experiences for r in planned if e.lesson.startswith("**"))


def test_the_executor_sees_workload_kernel_plan_and_how_to_write() -> None:
    """And neither profile nor memory."""
    world, result, model = paper_run()
    writing = front_matter("writing", world.task.backend.guide().writing)[1].strip()
    for request in model.asked("executor"):
        assert all(f"## {heading}\n" in request.user for heading in ("Workload", "Kernel", "Step"))
        assert writing in request.system
        assert "speedup:" not in request.user + request.system
        assert not any(e.lesson in request.user + request.system for e in result.experiences)


def test_the_summarizer_sees_slow_fast_and_the_real_speedup() -> None:
    """The number in its prompt is the one that was measured between the two kernels."""
    _, result, model = paper_run()
    speeds = {c.source.text.strip(): speed(c) for c in result.candidates}
    assert model.asked("summarizer")
    for request in model.asked("summarizer"):
        slow, fast = block(request.user, "Slow kernel"), block(request.user, "Fast kernel")
        assert f"{speeds[fast] / speeds[slow]:.2f} times as fast" in request.user


def test_the_fixer_sees_the_failed_kernel_and_the_log() -> None:
    """Its prompt has the rejected source, the stage and the reason."""
    world, _, model = paper_run(fixes=5)
    broken = {e["reply"]["text"].strip() for e in world.log.events() if e["kind"] == "fix" and e["reply"]}
    assert model.asked("fixer")
    for request in model.asked("fixer"):
        assert 'at the stage "' in request.user
        assert "a flaw of this structure" in request.user
        assert block(request.user, "Kernel") not in broken or request.call.rpartition("/")[2] > "0"


def test_each_role_may_have_a_model_of_its_own() -> None:
    """Four names, and each role asks its own."""
    model = Heard(SimulatedModel())
    models = {role: [role[:1]] for role in ROLES}
    World(proposer=AgentProposer(ScriptedClient(model), models=models), settings=replace(SMALL, rounds=2)).run()
    assert {("planner", "p"), ("executor", "e"), ("summarizer", "s")} == {(r.role, r.model) for r in model.requests}


def test_languages_share_one_skeleton_and_bring_versioned_facts() -> None:
    """Prompts have a version each and no language in them; what knows the language is a backend's versioned text."""
    world, _, _ = paper_run()
    guide = world.task.backend.guide()
    assert all(prompt(role).version for role in ROLES)
    assert all(front_matter(name, text)[0] for name, text in (("facts", guide.facts), ("writing", guide.writing)))


def test_prompts_hold_no_recipes_and_forbid_lower_precision() -> None:
    """Generic words only; planner and executor are told never to lower the precision."""
    texts = {role: prompt(role).system + prompt(role).user for role in ROLES}
    assert all("Never lower the precision" in texts[role] for role in ("planner", "executor"))
    assert [] == re.findall(
        r"online softmax|flash|swizzl|prefetch|split-?k|double.buffer", " ".join(texts.values()), re.IGNORECASE
    )


# ---------------------------------------------------------------- memory


def test_an_item_has_both_kernels_title_summary_speedup_and_origin() -> None:
    """Everything of an AccelOpt memory item is in an experience."""
    _, result, _ = paper_run()
    item = next(e for e in result.experiences if e.lesson.startswith("**"))
    assert item.slow and item.fast and item.title and item.speedup > 1
    assert {"run", "round", "plan", "slow_candidate", "fast_candidate"} <= item.origin.keys()


def test_teaching_pairs_are_chosen_by_the_papers_thresholds() -> None:
    """Positive above 1.04 with the fastest sample, at most TopK/2; negative below 1/1.15 with the slowest, up to TopK."""
    parent = candidate(0, 1.0)

    def group(*speeds: float) -> Group:
        children = tuple(candidate(int(1000 * s), s) for s in speeds)
        return Group(parent=parent, plan=children[0].plan, children=children)  # type: ignore[arg-type]

    groups = [
        group(1.05, 0.5),
        group(1.03),
        group(0.86, 0.8),
        group(0.88),
        group(1.5),
        group(1.4),
        group(1.3),
        group(1.2),
        group(0.5),
    ]
    pairs = teaching_pairs(groups, 8)
    assert [1500, 1400, 1300, 1200] == [p.fast.id for p in pairs if p.helped]
    assert [500, 800] == [p.slow.id for p in pairs if not p.helped]
    assert [1500, 500] == [p.fast.id if p.helped else p.slow.id for p in teaching_pairs(groups[-1:] + groups[4:5], 2)]


def test_memory_is_a_queue_of_sixteen_that_takes_eight_a_round() -> None:
    """TopK 8, ExpN 16: the newest stay, the oldest go; what teaches nothing is never shown."""
    from accelopt_compile.search.memory import Memory
    from accelopt_compile.search.recall import shown

    settings = SearchSettings.preset("paper")
    assert (8, 16) == (settings.lessons_per_round, settings.memory_capacity)
    world, memory = World(settings=settings), Memory()
    for number in range(20):
        memory.add([experience(lesson=f"lesson number {number}")], capacity=settings.memory_capacity)
    memory.add([experience(lesson="No optimization found.")], capacity=17)
    told = [e.lesson for e in shown(world.task, memory, 10_000)]
    assert [f"lesson number {n}" for n in range(4, 20)] == told


def test_memory_is_saved_after_every_round_the_last_included() -> None:
    """The state that is saved after round T has what round T taught."""
    world, result, _ = paper_run()
    saved: list[SearchState] = world.states
    assert [0, 1, 2, 3, 4] == [state.round for state in saved]
    assert saved[-1].gained == result.experiences[: len(saved[-1].gained)]
    lessons = Counter(e["call"].partition("/")[0] for e in world.log.events() if e["kind"] == "lesson" and e["reply"])
    assert len(saved[-1].gained) == lessons.total()


def test_nothing_of_other_workloads_is_shown_in_paper_mode() -> None:
    """A memory full of others' lessons changes no prompt."""
    prior = [experience(lesson="**From elsewhere** set loop to tiles", speedup=3.0)]
    model = Heard(SimulatedModel())
    World(proposer=AgentProposer(ScriptedClient(model), models=MODELS), settings=SMALL, prior=prior).run()
    assert not any("From elsewhere" in r.system for r in model.requests)


# ---------------------------------------------------------------- fixer


def test_the_fixer_goes_on_until_right_or_its_budget() -> None:
    """No fixer in paper mode, F attempts where asked for; each is logged, judged and paid for."""
    _, _, without = paper_run()
    world, result, model = paper_run(fixes=5)
    assert 0 == SearchSettings.preset("paper").fix_attempts
    assert [] == without.asked("fixer")
    fixes = [e for e in world.log.events() if e["kind"] == "fix"]
    assert len(fixes) == len(model.asked("fixer"))
    tries = Counter(e["call"].rpartition("/")[0] for e in fixes)
    assert 1 <= max(tries.values()) <= 5
    assert {"build", "numerics"} >= {e["stage"] for e in fixes} >= {"numerics"} & set(result.rejected)


# ---------------------------------------------------------------- accounting


def test_tokens_and_dollars_are_counted_by_role_and_the_limit_is_hard() -> None:
    """Every role's tokens and price are in the account; a run under a limit ends below it and says so."""
    prices = load_prices()
    spending = Spending(prices=prices, usd=0.004)
    asked: list[Request] = []

    def answer(request: Request) -> Reply:
        asked.append(request)
        return SimulatedModel()(request)

    client = MeteredClient(ScriptedClient(answer), spending)
    models = {role: ["gpt-oss-120b"] for role in ROLES}
    proposer = AgentProposer(client, models=models, max_tokens=dict.fromkeys(ROLES, 500))
    result = World(proposer=proposer, settings=replace(SMALL, rounds=16)).run()
    account = spending.to_json()
    assert 0 < spending.usd <= 0.004
    assert "budget" in result.reason
    assert {"planner", "executor", "summarizer"} <= set(account["by_role"])
    assert json.loads(json.dumps(account)) == account


def test_candidates_are_read_back_as_they_were() -> None:
    """What a report is made of, speedups and sources included, survives the log's JSON."""
    from accelopt_compile.search.state import candidate_json

    _, result, _ = paper_run()
    assert list(result.candidates) == [candidate_from(json.loads(json.dumps(candidate_json(c)))) for c in result.candidates]
