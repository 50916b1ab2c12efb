"""Is it faster? The runner samples, block by block; the host, here, decides order, statistics and verdict, and holds the
runner's clock against its own. The referee judges what timed calls wrote."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from typing import Any

from accelopt_compile.errors import EvaluatorDied
from accelopt_compile.evaluate import timing
from accelopt_compile.evaluate.crew import Crew
from accelopt_compile.evaluate.devices import MARGINS
from accelopt_compile.evaluate.doubts import (
    CLOCKS_APART,
    borne_out,
    charged,
    on_new_content,
    seen_ratio,
    takes_longer,
    waits_longer,
)
from accelopt_compile.evaluate.sandbox.host import Child
from accelopt_compile.evaluate.verifying import called
from accelopt_compile.records import Rejected, Stage, Timing

CLOSE = 1.2
"""A second baseline within this factor of the better one is measured against too, at full effort."""
FAR = 3.0
"""A baseline this many times slower than the other is measured no closer."""
LOOK_S = 0.001
"""Short enough to fall between what neighbours do: at 4 ms on two busy threads no look did."""
LOOKS = 10
ATTEMPTS = 4
SURPRISES = 15
SURPRISED_S = 0.3
READS = 12
READ_ROUNDS = 4
READ_S = 0.05
DATA_DEPENDENT = ("topk", "sort")


class Stopped(Exception):
    """The candidate ended the measurement; `verdict` says how."""

    def __init__(self, verdict: Rejected) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class RunnerRig:
    """The two sides in a runner, as a `timing.Rig`. `check` says after which block what the kernel wrote is judged."""

    def __init__(self, clock: Clocking, runner: Child, ours: str, base: str) -> None:
        self._clock, self._runner, self._ours, self._base = clock, runner, ours, base
        self.checked: set[int] = set()

    def repeats(self) -> tuple[tuple[int, float], tuple[int, float]]:
        reply = self._clock.asked(self._runner, {"op": "bench", "ours": self._ours, "base": self._base})
        (a, took_a), (b, took_b) = _pairs(reply.get("repeats"), 2)
        return (max(1, int(a)), took_a), (max(1, int(b)), took_b)

    def rough_us(self) -> tuple[float, float]:
        """Microseconds a call of ours and of the base, the fastest of a few: what a neighbour took is not held against it."""
        (a, _), (b, _) = self.repeats()
        pairs = self.block(0, (True, False, True), (a, b))
        ours_ns, base_ns = (min(pair[side] for pair in pairs) for side in (0, 1))
        return ours_ns / 1e3, base_ns / 1e3

    def block(self, number: int, order: Sequence[bool], counts: tuple[int, int]) -> timing.Pairs:
        message = {"op": "block", "number": number, "order": list(order), "counts": counts, "check": number in self.checked}
        return _pairs(self._clock.asked(self._runner, message).get("times"), len(order))


class Clocking:
    """Times candidates of one workload at one binding. Medians of the baselines are measured once, the noise in full timings."""

    def __init__(self, crew: Crew, *, threads: int, seed: int) -> None:
        self._crew, self._threads, self._seed = crew, threads, seed
        self._margins = MARGINS[crew.driver]
        self._random = random.Random(seed)
        self._medians: dict[str, float] = {}

    def medians(self) -> dict[str, float]:
        """Median microseconds of "eager" and, where there is one, "inductor". Raises EvaluatorDied."""
        if not self._medians:
            self._prepare(self._seed)
            runner = self._crew.runner(timing=True)
            try:
                self._medians = self._baselines(runner)
            except Stopped as stopped:  # no word on any kernel: the baselines' own process died, or was too slow
                why = f"the baselines could not be timed: {stopped.verdict.reason}"
                raise EvaluatorDied(why) from stopped
            finally:
                runner.close()
        return dict(self._medians)

    def _baselines(self, runner: Child) -> dict[str, float]:
        if not self._crew.inductor():
            paired = self._measure(RunnerRig(self, runner, "eager", "eager"), timing.QUICK)
            return {"eager": min(paired.ours_us, paired.base_us)}
        rig = RunnerRig(self, runner, "eager", "inductor")
        rough = rig.rough_us()
        if max(rough) > FAR * min(rough):  # nobody's rival: not worth the seconds that eager takes over large tensors
            return dict(zip(("eager", "inductor"), rough, strict=True))
        paired = self._measure(rig, timing.QUICK)
        return {"eager": paired.ours_us, "inductor": paired.base_us}

    def time(self, runner: Child, effort: str, seed: int) -> Timing | Rejected:
        """Time the kernel that `runner` has loaded against whichever baseline leaves the least speedup, on inputs of
        `seed`: never those of a check."""
        medians = self.medians()
        ranked = sorted(medians, key=lambda name: medians[name])
        rivals = [name for name in ranked if effort == "full" and medians[name] < CLOSE * medians[ranked[0]]] or ranked[:1]
        protocol = timing.FULL if effort == "full" else timing.QUICK
        noise = 0.0
        try:
            self._prepare(seed)
            if effort == "full" and "inductor" in medians and "inductor" not in rivals and self._near(runner, rivals[0]):
                rivals = [*rivals, "inductor"]
            results = {name: self._against(name, runner, protocol) for name in rivals}
            least = min(results, key=lambda name: results[name].ratio)
            paired = results[least]
            if effort == "full":
                noise = timing.noise(self._measure(RunnerRig(self, runner, rivals[0], rivals[0]), timing.QUICK))
                self._look(runner, least, paired)
                paired = self._surprise(runner, least, paired)
        except Stopped as stopped:
            return stopped.verdict
        return Timing(
            kernel_us=paired.ours_us,
            baselines_us=medians | {name: p.base_us for name, p in results.items()},
            speedup=paired.ratio,
            low=paired.low,
            high=paired.high,
            blocks=paired.blocks,
            threads=self._threads,
            noise=noise,
        )

    def _near(self, runner: Child, rival: str) -> bool:
        """Whether Inductor's code is a rival after all: a neighbour may have made of it what it was measured at first (25 us with
        two threads became milliseconds), and no slower kernel must win for that."""
        rough = RunnerRig(self, runner, rival, "inductor").rough_us()
        return rough[1] < CLOSE * rough[0]

    def asked(self, runner: Child, message: dict[str, Any]) -> dict[str, Any]:
        """The runner's answer. Raises Stopped."""
        if message["op"] == "bench":
            binding = self._crew.binding
            about = {"workload": self._crew.workload.to_json(), "binding": binding, "threads": self._threads}
            message = message | about | {"seed": self._random.randrange(1 << 30)}
        reply = called(runner, message, self._crew.limits.timing_s, "while it was timed")
        if isinstance(reply, Rejected):
            raise Stopped(reply)
        return reply

    def _prepare(self, seed: int) -> None:
        binding = sorted(self._crew.binding.items())
        about = {"binding": binding, "family": "normal", "seed": seed, "probes": 6}
        prepared = self._crew.ask({"op": "prepare_timed", **about})
        if "skip" in prepared:
            verdict = Rejected(stage=Stage.RUN, reason=f"nothing can be timed: {prepared['skip']}")
            raise Stopped(verdict)

    def _measure(self, rig: RunnerRig, protocol: timing.Protocol, after: Any = None) -> timing.Paired:
        contended = not self._crew.driver and timing.contended(self._threads)
        return timing.measure(rig, protocol, contended=contended, generator=self._random, after_block=after)

    def _against(self, name: str, runner: Child, protocol: timing.Protocol) -> timing.Paired:
        """One paired measurement. What the kernel wrote is judged after the first block, a random one and the last."""
        rig = RunnerRig(self, runner, "kernel", name)
        rig.checked = {0, self._random.randrange(1, 3)}

        def judge(number: int, blocks: int) -> None:
            if number in rig.checked:
                found = self._crew.ask({"op": "check_timed"})
                if found["fault"]:
                    reason = "wrong result after timing, right before it"
                    raise Stopped(Rejected(stage=Stage.CHEAT, reason=reason, diagnosis=str(found["fault"])))
            rig.checked.add(blocks - 1)

        return self._with_reader(name, runner, self._measure(rig, protocol, judge))

    def _with_reader(self, base: str, runner: Child, paired: timing.Paired) -> timing.Paired:
        """The measurement with our side charged for what a reader of its outputs waits longer than after the base's."""
        if paired.ratio < 1 / timing.HOPELESS:
            return paired
        count = max(2, min(READS, int(1e6 * READ_S / (2 * READ_ROUNDS * (paired.ours_us + paired.base_us)))))

        def reads(side: str) -> list[float]:
            return _times(self.asked(runner, {"op": "read", "side": side, "count": count}).get("times"), count)

        rounds = [(reads("kernel"), reads(base)) for _ in range(READ_ROUNDS)]
        return charged(paired, longer_us=waits_longer(rounds) / 1e3, step_us=self._margins.step_us)

    def _look(self, runner: Child, base: str, paired: timing.Paired) -> None:
        """The same speedup by a clock that the candidate cannot reach: this process's. Raises Stopped where it is far less. On a
        device our calls are seen without their launches: what a launch costs the host is no work of the kernel's."""
        sides = {"kernel": paired.ours_us, base: paired.base_us}
        counts = {side: max(1, math.ceil(1e6 * LOOK_S / max(us, 0.05))) for side, us in sides.items()}
        best = dict.fromkeys(counts, math.inf)
        asking = math.inf
        for side in counts:
            self._outside(runner, side, 1)  # makes the buffers
        for attempt in range(ATTEMPTS):  # neighbours disturb this clock: only what never agrees is held against it
            for _ in range(LOOKS << attempt):
                asking = min(asking, self._outside(runner, "kernel", 0))
                for side, count in counts.items():
                    best[side] = min(best[side], self._outside(runner, side, count))
            ours, theirs = (1e6 * max(best[side] - asking, 1e-9) / counts[side] for side in ("kernel", base))
            seen = seen_ratio(ours, theirs, launch_us=self._margins.launch_us)
            if paired.low <= 1.0 or paired.ratio <= CLOCKS_APART * seen:
                return
        reason = f"a gain of {paired.ratio:.2f}x by its own process, {seen:.2f}x by a clock outside"
        raise Stopped(Rejected(stage=Stage.CHEAT, reason=reason))

    def _outside(self, runner: Child, side: str, count: int) -> float:
        """Seconds that this process waits for so many calls."""
        begin = time.perf_counter()
        self.asked(runner, {"op": "calls", "side": side, "count": count})
        return time.perf_counter() - begin

    def _surprise(self, runner: Child, base: str, paired: timing.Paired) -> timing.Paired:
        """The speedup, believed as far as content that each call sees for the first time bears it out. Raises Stopped where the
        kernel gains only on what it has seen: it answers from memory, or gains only on what lies in the nearest cache."""
        count = max(3, min(SURPRISES, int(1e6 * SURPRISED_S / (8 * (paired.ours_us + paired.base_us)))))
        times: dict[str, list[float]] = {"kernel": [], base: []}
        for _ in range(ATTEMPTS):  # as for `_look`: a neighbour that empties the caches must not speak against a kernel
            for side, seen_so_far in times.items():
                reply = self.asked(runner, {"op": "fresh", "side": side, "count": count})
                seen_so_far += _times(reply.get("times"), count)
            ours_us, base_us = (min(times[side]) / 1e3 for side in ("kernel", base))
            if borne_out(paired, base_us / ours_us):
                return paired
        # Work that depends on the data is slower on new content: a processor learns the branches of a top-k by heart. Where the
        # kernel takes no longer than in the pairs, it was the base that did: with threads that wait for a core which a neighbour
        # had, an optimizer step of Inductor's was "6.57x slower".
        by_data = any(op in node.op for node in self._crew.workload.nodes for op in DATA_DEPENDENT)
        if by_data or not takes_longer(ours_us, paired.ours_us) or not self._remembers(runner, count):
            return on_new_content(paired, base_us / ours_us)
        reason = f"a gain of {paired.ratio:.2f}x on inputs that it has just seen, {base_us / ours_us:.2f}x on others"
        raise Stopped(Rejected(stage=Stage.CHEAT, reason=reason))

    def _remembers(self, runner: Child, count: int) -> bool:
        """Whether the kernel takes longer on content that its last call has not seen than on the same, the buffers written
        anew for both: an AdamW step of 3 MB is 4x of Inductor's in the nearest cache and 2x beyond it, and remembers nothing."""
        fastest = {True: math.inf, False: math.inf}
        for _ in range(ATTEMPTS):
            for same in fastest:
                reply = self.asked(runner, {"op": "second", "side": "kernel", "count": count, "same": same})
                fastest[same] = min(fastest[same], *_times(reply.get("times"), count))
            if not takes_longer(fastest[False], fastest[True]):
                return False
        return True


def _pairs(value: Any, count: int) -> list[tuple[float, float]]:
    """What a runner sent as pairs of positive numbers. Raises Stopped for anything else."""
    try:
        flat = [x for a, b in value for x in (a, b)]
    except (TypeError, ValueError):
        flat = []
    times = iter(_times(flat, 2 * count))
    return list(zip(times, times, strict=True))


def _times(value: Any, count: int) -> list[float]:
    """What a runner sent as positive numbers. Raises Stopped for anything else."""
    try:
        found = [float(x) for x in value]
    except (TypeError, ValueError, OverflowError):
        found = []
    if len(found) != count or not all(math.isfinite(x) and x > 0 for x in found):
        raise Stopped(Rejected(stage=Stage.CHEAT, reason="the runner sent no times"))
    return found
