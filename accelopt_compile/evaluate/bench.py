"""A loaded kernel beside the baselines of its workload, on fresh buffers, ready to be timed. Runs in the runner: samples
and outputs go out, decisions and right answers never come in."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from accelopt_compile.evaluate import timing
from accelopt_compile.evaluate.baseline import Baselines
from accelopt_compile.evaluate.buffers import GUARDS, POISONS, Buffers, Guarded, layout
from accelopt_compile.evaluate.devices import Device
from accelopt_compile.evaluate.launching import allocating_call
from accelopt_compile.family import PRODUCTS
from accelopt_compile.records import Workload

FRESH_SETS = 8
FRESH_BYTES = 32 << 20

ROTATED_SETS = 64
"""Sets of buffers at most for matrix products, whose weights a program reads once a step. On one set they stay in the cache, and
there a kernel without prefetch was 1.9x of Inductor's which was 1.0x of it in the model."""


class Bench:
    """The sides of one measurement: "kernel", "eager" or "inductor". Inputs are those that lie in `memory`, where the
    referee put them; what a checked call wrote goes back there. On a `device` all sides work on tensors there, and its clock
    counts."""

    def __init__(
        self,
        workload: Workload,
        binding: Mapping[str, int],
        baselines: Baselines,
        *,
        memory: torch.Tensor,
        kernel: Any,
        threads: int,
        seed: int,
        launcher: ModuleType | None = None,
        device: Device | None = None,
    ) -> None:
        torch.set_num_threads(threads)
        if device is None:
            keep_freed_memory()
        self._workload, self._binding, self._baselines = workload, dict(binding), baselines
        self._kernel, self._threads, self._launcher = kernel, threads, launcher
        self._random = random.Random(seed)
        self._arena = Buffers(workload, binding, memory=memory, apart=True)
        self._given = [guarded.tensor for guarded in self._arena.inputs]
        self._timed: list[torch.Tensor] = []
        self._device = device
        self._stopwatch = None if device is None else device.stopwatch()
        self._rig: timing.LocalRig | timing.DeviceRig | None = None
        self._kept: dict[str, tuple[timing.Call, list[torch.Tensor]]] = {}
        self._last_inputs: list[torch.Tensor] = []
        self._contents = itertools.count(1)
        products = any(node.op.split(".")[1] in PRODUCTS for node in workload.nodes)
        self._rotated = self._sets(ROTATED_SETS) if products and device is None and not workload.aliases else 1

    def sides(self, ours: str, base: str) -> list[tuple[int, float]]:
        """Set up two sides; (calls per sample, ns per call) of each."""
        makers = (lambda: self._call(ours)), (lambda: self._call(base))
        if self._stopwatch is not None:
            self._rig = timing.DeviceRig(*makers, self._stopwatch)
        else:
            self._rig = timing.LocalRig(*makers, timing.clock_for(self._threads))
        return list(self._rig.repeats())

    def block(self, number: int, order: Sequence[bool], counts: Sequence[int], *, check: bool) -> timing.Pairs:
        """One block; with `check` what one more call of ours writes is put into the arena."""
        assert self._rig is not None
        times = self._rig.block(number, order, (counts[0], counts[1]))
        if check and self._rig.last is not None:
            self._write_out(self._rig.last)
        return times

    def run(self, side: str, count: int) -> None:
        """So many calls in a row, for a clock outside this process; the first request of a side makes its buffers."""
        call, _ = self._ready(side)
        for _ in range(count):
            call()
        if self._device is not None:
            self._device.synchronize()

    def fresh(self, side: str, rounds: int) -> list[float]:
        """Nanoseconds a call, each on content that no call of this side has seen, and other content than the last."""
        made = []
        for _ in range(self._sets(FRESH_SETS)):
            made.append(self._prepared(self._call_on_one(side)))

        def all_of_them() -> None:
            for call, _ in made:
                call()

        def all_ns() -> float:
            if self._stopwatch is not None:
                return sum(1e3 * self._stopwatch.sample_us(call) for call, _ in made)
            return timing.sample(all_of_them, 1, timing.clock_for(self._threads))

        taken = []
        for _ in range(rounds + 1):
            for _, inputs in made:
                self._put(inputs, next(self._contents))
            taken.append(max(all_ns(), 1.0) / len(made))
        return taken[1:]

    def second(self, side: str, rounds: int, *, same: bool) -> list[float]:
        """Nanoseconds of the second of two calls on the same buffers, written anew before each: with the content of the first,
        or with content that no call of this side has seen."""
        call, inputs = self._prepared(self._call_on_one(side))
        taken = []
        for _ in range(rounds):
            content = next(self._contents)
            self._put(inputs, content)
            call()
            self._put(inputs, content if same else next(self._contents))
            if self._stopwatch is not None:
                taken.append(1e3 * self._stopwatch.sample_us(call))
            else:
                taken.append(timing.sample(call, 1, timing.clock_for(self._threads)))
        return [max(ns, 1.0) for ns in taken]

    def _put(self, inputs: Sequence[torch.Tensor], content: int) -> None:
        """Write one of many contents over a side's inputs, 0 the given one."""
        for x, first in zip(inputs, self._given, strict=True):
            if 0 not in x.stride():
                x.copy_(torch.roll(first, content))

    def reads(self, side: str, count: int) -> list[float]:
        """Nanoseconds that reading a call's outputs takes right after it: more where they went past the caches."""
        call, inputs = self._ready(side)
        under = [inputs[given] for _, given in self._workload.aliases]
        unrelated = torch.zeros(8, dtype=torch.int64) if self._stopwatch is None else None

        def taken() -> float:
            outputs: list[torch.Tensor] = []  # its own, freed at the end, so that the next call gets this memory
            words: list[torch.Tensor] = []

            def call_ours() -> None:
                outputs.extend(self._new_outputs(call()))
                words.extend(_words(output) for output in (*outputs, *under))
                if unrelated is not None:  # the data's way is timed, not that of the sum's code, which some baselines run too
                    unrelated.sum()

            def read_all() -> None:
                for output in words:
                    output.sum()

            if self._stopwatch is not None:
                read = 1e3 * self._stopwatch.after_us(call_ours, read_all)
            else:
                call_ours()
                read = timing.sample(read_all, 1, timing.clock_for(self._threads))
            for output in outputs:  # the next call gets this memory: it must not find a note there on how often it was called
                if output.is_contiguous() and output.numel():
                    output.view(-1).view(torch.uint8).fill_(POISONS[0])
            return read

        return [max(taken(), 1.0) for _ in range(count)]

    def _new_outputs(self, made: Any) -> list[torch.Tensor]:
        """Of what a side's call gives those that lie over no input: Inductor's code for an update gives nothing else."""
        over = dict(self._workload.aliases)
        return [x for k, x in enumerate(made) if k not in over] if len(made) == len(self._workload.output_specs) else list(made)

    def _ready(self, side: str) -> tuple[timing.Call, list[torch.Tensor]]:
        """The side's call on buffers that stay, and the inputs among them."""
        if side not in self._kept:
            self._kept[side] = self._prepared(self._call(side))
        return self._kept[side]

    def _prepared(self, call: timing.Call) -> tuple[timing.Call, list[torch.Tensor]]:
        """The call just made, ready to be timed, and its inputs."""
        return call if self._stopwatch is None else self._stopwatch.prepare(call), self._last_inputs

    def _call(self, side: str) -> timing.Call:
        """A call of the side; where its weights are to come from memory, each call in turn on another set of buffers."""
        calls = [self._call_on_one(side) for _ in range(self._rotated)]
        if len(calls) == 1:
            return calls[0]
        turns = itertools.cycle(calls)
        return lambda: next(turns)()

    def _call_on_one(self, side: str) -> timing.Call:
        inputs = self._last_inputs = self._fresh()
        if side == "kernel":
            self._timed = inputs
            empty = None if self._device is None else self._device.empty
            return allocating_call(self._kernel, self._workload, self._binding, inputs, self._threads, self._launcher, empty)
        compiled = self._baselines.inductor() if side == "inductor" else None
        if compiled is not None:
            return lambda: compiled(list(inputs))
        return lambda: self._baselines.eager(inputs)

    def _sets(self, most: int) -> int:
        """How many sets of inputs fit into FRESH_BYTES."""
        return max(1, min(most, FRESH_BYTES // max(sum(x.numel() * x.element_size() for x in self._given), 1)))

    def _fresh(self) -> list[torch.Tensor]:
        """The inputs in new memory, each after a random padding, so that placement differs from block to block."""
        fresh = []
        for x in self._given:
            padding = self._bytes(self._random.randrange(1, 64) * 1024)
            place = layout(x.dtype, x.shape, x.stride())
            guarded = Guarded(place, self._bytes(place.total))
            guarded.write(x, GUARDS[0])
            fresh.append(guarded.tensor)
            del padding
        return fresh

    def _bytes(self, count: int) -> torch.Tensor:
        if self._device is None:
            return torch.empty(count, dtype=torch.uint8)
        return self._device.empty((count,), (1,), torch.uint8)

    def _write_out(self, call: timing.Call) -> None:
        if self._workload.aliases:  # one more call writes over the inputs, which get their first values back for it
            self._put(self._timed, 0)
        else:
            stale: Any = call()
            for output in stale:  # the next call most likely gets this memory again: it must not find a right answer there
                if output.is_contiguous() and output.numel():
                    output.view(-1).view(torch.uint8).fill_(POISONS[0])
            del stale, output
        results: Any = call()
        for slot, result in zip(self._arena.outputs, results, strict=True):
            slot.tensor.copy_(result)


def _words(output: torch.Tensor) -> torch.Tensor:
    """The output as something whose sum needs every element: integers as wide as can be, for it must not cost more than the
    reading."""
    if not output.is_contiguous():
        return output
    flat = output.view(-1).view(torch.uint8)
    return flat.view(torch.int64) if flat.numel() % 8 == 0 and flat.data_ptr() % 8 == 0 else flat


def keep_freed_memory() -> None:
    """Have the C library keep what is freed, as it does in any program that loaded a model: once a block of nearly 32 MB was
    freed, glibc gives no smaller one back to the system. Until then one side of a timing got fresh pages at each call and the
    other did not, in some blocks: of two equal timings of a softmax of 1024 x 1024 one gave 1.12x and the other 2.71x, and
    since then 1.86x to 1.97x."""
    torch.empty((32 << 20) - (64 << 10), dtype=torch.uint8)
