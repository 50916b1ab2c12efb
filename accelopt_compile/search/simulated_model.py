"""A language model for the simulated world: it reads prompts as a model does and answers them, mostly well.

For tests and ablations without an endpoint. What it knows of the landscape is what the prompt says; its skill is a share of
plans that go the way a lesson in the prompt went. An answer is a function of the request alone.
"""

from __future__ import annotations

import json
import random
import re

from accelopt_compile.llm.client import Reply, Request, Usage
from accelopt_compile.search.simulated import GRAMMAR

_STEP = re.compile(r"[Ss]et (\w+) to (\w+)")
_BLOCK = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


class SimulatedModel:
    """Call it with a request. `faults` is the share of answers of executors and planners that are unusable in one of the ways
    of real models; `hears` the share of plans that follow a lesson where the prompt has one."""

    def __init__(self, *, faults: float = 0.0, hears: float = 0.7) -> None:
        self.faults, self.hears = faults, hears

    def __call__(self, request: Request) -> Reply:
        rng = random.Random(request.key)
        text = getattr(self, f"_{request.role}")(request, rng)
        if request.role in ("planner", "executor") and rng.random() < self.faults:
            text = rng.choice(["", "I cannot do that.", "```python\nprint(1)\n```", text[: len(text) // 2], '{"plans": [7]}'])
        usage = Usage(prompt=(len(request.system) + len(request.user)) // 4, completion=max(1, len(text) // 4))
        return Reply(text=text, problem="" if text else "empty", usage=usage, model=request.model)

    def _planner(self, request: Request, rng: random.Random) -> str:
        now = _choices(request.user)
        asked = re.search(r"Give (one|\d+) plan", request.user)
        count = 1 if asked is None or asked[1] == "one" else int(asked[1])
        heard = [(n, v) for n, v in _STEP.findall(request.system) if v in GRAMMAR.get(n, ())]
        plans: list[str] = []
        while len(plans) < count:
            name = rng.choice(sorted(GRAMMAR))
            value = rng.choice(GRAMMAR[name])
            if heard and rng.random() < self.hears:
                name, value = rng.choice(heard)
            if now.get(name) != value or rng.random() < 0.1:
                plans.append(f"Set {name} to {value}, as the profile says.")
        return "```json\n" + json.dumps({"plans": plans}) + "\n```"

    def _executor(self, request: Request, rng: random.Random) -> str:
        step = request.user.partition("## Step")[2]
        choices = _choices(request.user) | dict(_STEP.findall(step)[:1])
        return f"Here it is.\n```text\n{_kernel(choices)}```\n"

    def _fixer(self, request: Request, rng: random.Random) -> str:
        name = rng.choice(sorted(GRAMMAR))
        return f"```text\n{_kernel(_choices(request.user) | {name: GRAMMAR[name][0]})}```"

    def _summarizer(self, request: Request, rng: random.Random) -> str:
        slow, fast = (_choices("## Kernel\n```\n" + block + "```") for block in _BLOCK.findall(request.user)[:2])
        changed = [(n, v) for n, v in fast.items() if slow.get(n) != v]
        if not changed:
            return "NO LESSON"
        name, value = changed[0]
        return f"**{name} as {value}**\nSet {name} to {value}: it was faster.\nBefore: {slow.get(name)}\nAfter: {value}"


def _choices(text: str) -> dict[str, str]:
    """The choices of the kernel that a prompt shows."""
    block = _BLOCK.search(text.partition("## Kernel")[2])
    return dict(re.findall(r"^(\w+) = (\w+);$", block[1] if block else "", re.MULTILINE))


def _kernel(choices: dict[str, str]) -> str:
    return "".join(f"{name} = {value};\n" for name, value in choices.items())
