"""A GPU that is not there: what a build of torch without one needs before it can trace for it.

`pretend()` makes a process trace fake tensors on "cuda:0" up to the graphs that a machine with a GPU would give to Inductor.
Nothing can run: a tensor with memory still fails. Call it first thing in a process of its own, before torch is imported.

What fails without it in torch 2.13's CPU-only build, and how that is avoided:

- `tensor.to("cuda")`, and any autograd node on a fake tensor: "not linked with support for cuda devices" (the latter ends the
  process). There is no device guard. FakeTensorMode installs one, but only in builds with CUDA. A library of 25 lines registers
  torch's own FakeGuardImpl.
- a backward: "Cannot access accelerator device when none is available". Autograd asks the device's hooks, which torch makes once,
  when it is imported. The library registers hooks that say "built and available"; therefore it must be loaded first.
- `scaled_dot_product_attention` becomes matrix products: the choice among its kernels is made in the CUDA library. The library
  makes it as that one does in the common cases: flash for 16 bits without a mask, else memory-efficient.
- Inductor's folding of uniform constants runs `aten.full` on the graph's device: it is run on the host instead, on one element.
- `torch.cuda.is_available()` stays False: whoever asks it takes its path without a GPU. Inductor's passes before code generation
  ask for properties of the device in a few places: they get those of `PROPERTIES`.
- modules are made under `torch.device("cuda:0")` with the wanted default dtype: `module.to` cannot swap fake parameters.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SOURCE = r"""
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/impl/FakeGuardImpl.h>

namespace {
struct Hooks : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return false; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
};
c10::impl::FakeGuardImpl<c10::DeviceType::CUDA> guard;

int64_t attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor&, const std::optional<at::Tensor>& mask, double,
                  bool, std::optional<double>, bool) {
  const bool grouped = q.dim() == 4 && q.sym_size(1) != k.sym_size(1), narrow = q.element_size() == 2;
  if (narrow && !mask && q.sym_size(-1) <= 256) return 1;                        // flash
  if (q.element_size() <= 4 && !grouped && !(mask && mask->requires_grad())) return 2;  // memory-efficient
  return 0;
}
}  // namespace

namespace at {
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, Hooks)
}

extern "C" bool pretend() {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&attention);
  c10::impl::registerDeviceGuard(c10::DeviceType::CUDA, &guard);
  return at::detail::getCUDAHooks().isBuilt();
}
"""

DEVICE = "cuda:0"


class NoPretence(RuntimeError):
    """Tracing for an absent GPU is not possible in this process; the message says why."""


def pretend() -> None:
    """Make this process trace for a GPU. Raises NoPretence. Where torch sees a real one nothing is changed."""
    if "torch" in sys.modules:
        raise NoPretence("torch is imported already; call absent_device.pretend() first, in a fresh process")
    folder = _torch_folder()
    if not list((folder / "lib").glob("libtorch_cuda.so*")) and not ctypes.CDLL(str(_library(folder))).pretend():
        raise NoPretence("torch made its hooks before ours were registered")
    _fold_on_host()


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise NoPretence("torch is not installed")
    return Path(spec.origin).parent


def _library(folder: Path) -> Path:
    """The built library, made once for each installation of torch (about 2 s)."""
    version = (folder / "version.py").read_text()
    name = hashlib.sha256(f"{SOURCE}{folder}{version}".encode()).hexdigest()[:16]
    place = Path(tempfile.gettempdir()) / f"accelopt-absent-device-{os.getuid()}"
    built = place / f"{name}.so"
    if built.exists():
        return built
    place.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        source, made = Path(scratch) / "guard.cpp", Path(scratch) / "guard.so"
        source.write_text(SOURCE)
        command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O1", "-shared", "-fPIC", str(source), "-o", str(made)]
        command += [f"-I{folder / 'include'}", f"-L{folder / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{folder / 'lib'}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoPretence(f"the guard does not compile: {done.stderr[-1500:]}")
        made.replace(built)
    return built


def _fold_on_host() -> None:
    """Let Inductor's folding of uniform constants compute its one element on the host."""
    from torch._inductor.fx_passes import joint_graph
    from torch.utils._python_dispatch import TorchDispatchMode

    class OnHost(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if kwargs.get("device") is not None:
                kwargs["device"] = "cpu"
            return func(*args, **kwargs)

    class HostFolder(joint_graph.UniformValueConstantFolder):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            with OnHost():
                super().__init__(*args, **kwargs)

        def run(self) -> Any:
            with OnHost():
                return super().run()

    joint_graph.UniformValueConstantFolder = HostFolder  # type: ignore[misc]
