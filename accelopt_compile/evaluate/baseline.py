"""What a kernel has to beat: the region compiled by Inductor, and the region run in eager.

All sides are timed as one call that allocates its outputs and fills them. Inductor's side is the `call` function that
Inductor generated for the region alone, without Dynamo's and AOTAutograd's wrappers and without its assertions on
sizes and alignment: what the region costs inside a larger compiled graph. Eager's side is the region's own ATen calls
under no_grad (decomposed as Inductor sees them, not as the user wrote them).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule

from accelopt_compile.dtypes import DTYPES
from accelopt_compile.evaluate.devices import Device
from accelopt_compile.evaluate.placing import lowerable, placed
from accelopt_compile.evaluate.reference import reference_module
from accelopt_compile.evaluate.sandbox.headers import drop_headers
from accelopt_compile.records import Binding, Workload

Run = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]

_TORN = re.compile(r"(/\S+\.so): (?:file too short|invalid ELF header)")
"""What the loader says of a library whose compiler was killed. Inductor takes it for compiled and never makes it again."""

_TORN_HEADER = re.compile(r"while reading precompiled header|cannot read \S+\.gch")
"""What GCC says of a precompiled header that was cut short."""


class Baselines:
    """The two baselines of a workload at a binding, on a `device` or the host. Compiles at most once."""

    def __init__(self, workload: Workload, binding: Binding, device: Device | None = None) -> None:
        self._workload, self._binding, self._device = workload, binding, device
        self._where = "cpu" if device is None else device.where
        self._module = timed_module(workload, binding, where=self._where)
        self._compiled: Run | None = None
        self._why = ""

    def eager(self, inputs: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The outputs. Those that lie over inputs are copied there, as a user's in-place operators would leave them."""
        result: Sequence[torch.Tensor] = self._module(*inputs)
        for output, given in self._workload.aliases:
            inputs[given].copy_(result[output])
        return result

    def inductor(self) -> Run | None:
        """Inductor's function for the region (it takes a list and may empty it), or None when it cannot compile it."""
        if self._compiled is None and not self._why:
            try:
                self._compiled = self._compile_once()
            except Exception as failure:  # Inductor on an arbitrary graph: whatever it raises, eager is then the baseline
                self._why = f"{type(failure).__name__}: {failure}"[:500]
        return self._compiled

    def prepare(self) -> dict[str, Any]:
        """Compile, so that the compiled code is in Inductor's cache folder; whether that worked, and why not. For a device it
        is run once too: Inductor measures then which of its variants is best, and keeps that in the folder."""
        run = self.inductor()
        if run is not None and self._device is not None:
            try:
                run([self._zeros(x) for x in fake_inputs(self._workload, self._binding)])
                self._device.synchronize()
            except RuntimeError as failure:
                self._compiled, self._why = None, f"{type(failure).__name__}: {failure}"[:500]
        return {"inductor": self._compiled is not None, "why": self._why}

    def _zeros(self, like: torch.Tensor) -> torch.Tensor:
        assert self._device is not None
        span = 1 + sum((n - 1) * s for n, s in zip(like.shape, like.stride(), strict=True)) if like.numel() else 0
        return self._device.empty((span,), (1,), like.dtype).zero_().as_strided(like.shape, like.stride())

    def _compile_once(self) -> Run:
        """Compile, unless another child is at it: then take what it leaves in Inductor's cache. A library that a killed
        child left torn is made again, and so is a precompiled header, and where the compiler may not know the processor's
        instructions, Inductor finds out; without that, every later search of this region would have eager alone to beat."""
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        folder = Path(cache_dir()).resolve()
        (folder / "locks").mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "locks" / f"accelopt-{self._workload.digest[:32]}.lock"):
            try:
                return self._compile()
            except Exception as failure:
                if not _dropped_what_is_torn(str(failure), folder) and not _asks_for_instructions():
                    raise
                return self._compile()

    def _compile(self) -> Run:
        module = timed_module(self._workload, self._binding, in_place=True, where=self._where)
        fakes = fake_inputs(self._workload, self._binding, self._where)
        return compiled_with_inductor(lowerable(module, fakes), fakes)


def _dropped_what_is_torn(failure: str, folder: Path) -> bool:
    """Whether a failure was for a file below `folder` that is cut short, which is gone now, so that compiling again may help."""
    if _TORN_HEADER.search(failure):
        return drop_headers(folder)
    library = _TORN.search(failure)
    if library is None or not Path(library[1]).resolve().is_relative_to(folder):
        return False
    Path(library[1]).unlink(missing_ok=True)
    return True


def _asks_for_instructions() -> bool:
    """Have Inductor build for instructions that compiler and PyTorch both can, rather than for all that the processor has, as the
    fork server told it. Whether it was told so."""
    import torch._inductor.config as config
    from torch._inductor.cpu_vec_isa import supported_vec_isa_list, valid_vec_isa_list

    if not config.cpp.vec_isa_ok or os.environ.get("TORCHINDUCTOR_VEC_ISA_OK"):
        return False
    config.cpp.vec_isa_ok = None
    for remembered in (valid_vec_isa_list, *(type(isa).__bool__ for isa in supported_vec_isa_list)):
        if hasattr(remembered, "cache_clear"):
            remembered.cache_clear()
    return True


def compiled_with_inductor(module: GraphModule, fakes: list[torch.Tensor]) -> Run:
    """Inductor's function for a module of ATen calls. Raises what Inductor raises."""
    import torch._inductor.config as config
    from torch._inductor.compile_fx import compile_fx_inner

    with torch.no_grad(), config.patch(size_asserts=False, alignment_asserts=False, compile_threads=1):
        compiled: Any = compile_fx_inner(module, fakes)
    run: Run = compiled.current_callable
    return run


def timed_module(workload: Workload, binding: Binding, *, in_place: bool = False, where: str = "cpu") -> GraphModule:
    """The workload's calls on a device (see `reference_module`), and the copies of outputs into other layouts that the graph
    made.

    A workload does not say which of its calls copied into another layout, only what its outputs' strides are. Where the
    calls alone leave others, a copy into those ends the module: without it a transposition would have a baseline that
    does not transpose. The right answer needs no layout, so `reference_module` has none of this.
    """
    module = placed(reference_module(workload, binding, in_place=in_place), where)
    over = dict(workload.aliases) if in_place else {}
    specs = [spec for k, spec in enumerate(workload.output_specs) if k not in over]
    with FakeTensorMode(), torch.no_grad():
        made = module(*_inputs(workload, binding, where))
    end = module.graph.output_node()
    end.meta["user_visible_output_idxs"] = list(range(len(specs)))  # Inductor then keeps their strides
    results: list[Any] = list(end.args[0])  # type: ignore[arg-type]
    for k, (spec, value) in enumerate(zip(specs, made, strict=True)):
        strides = workload.bound_strides(spec, binding)
        if all(size <= 1 or have == want for size, have, want in zip(value.shape, value.stride(), strides, strict=True)):
            continue
        result = results[k]
        if result.target is torch.ops.aten.clone.default:  # that copy is the one to make
            result = result.args[0]
        order = sorted(range(len(strides)), key=lambda d: (-strides[d], d))
        back = [order.index(d) for d in range(len(strides))]
        with module.graph.inserting_before(end):
            turned = module.graph.call_function(torch.ops.aten.permute.default, (result, order))
            dense: dict[str, Any] = {"memory_format": torch.contiguous_format}
            copied = module.graph.call_function(torch.ops.aten.clone.default, (turned,), dense)
            results[k] = module.graph.call_function(torch.ops.aten.permute.default, (copied, back))
    end.args = (tuple(results),)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def fake_inputs(workload: Workload, binding: Binding, where: str = "cpu") -> list[torch.Tensor]:
    """Tensors of the inputs' shapes and strides, without memory."""
    with FakeTensorMode():
        return _inputs(workload, binding, where)


def _inputs(workload: Workload, binding: Binding, where: str = "cpu") -> list[torch.Tensor]:
    layouts = [(workload.bound_shape(s, binding), workload.bound_strides(s, binding), DTYPES[s.dtype]) for s in workload.inputs]
    return [torch.empty_strided(shape, strides, dtype=dtype, device=where) for shape, strides, dtype in layouts]
