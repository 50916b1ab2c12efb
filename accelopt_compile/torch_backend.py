"""`torch.compile(model, backend="accelopt")`: the function that PyTorch calls, and what happens when something goes wrong.

One rule: the user's program runs as it would under Inductor. Whatever fails in our layer costs one warning and gives
`compile_fx` of an untouched copy; what fails in Inductor fails as it would without us.
"""

from __future__ import annotations

import functools
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from torch._inductor.compile_fx import compile_fx, compile_fx_inner  # here, as torch.compile does it: not in the first call
from torch.fx import GraphModule

from accelopt_compile import outcomes, user_signals
from accelopt_compile.authors import check_authors
from accelopt_compile.config import MODES, Settings, settings_from
from accelopt_compile.errors import ToolchainMissing
from accelopt_compile.graph_pass import AccelOptPass
from accelopt_compile.launch import lowering
from accelopt_compile.outcomes import CompileReport, reports
from accelopt_compile.pipeline import Plan, plan

log = logging.getLogger("accelopt_compile.torch_backend")

_Compiled = TypeVar("_Compiled")

HOOK = "post_grad_custom_pre_pass"

lowering.install()  # at import: a graph from Inductor's cache is run before anything else of ours is


def accelopt(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    **settings: Any,
) -> Callable[..., Any]:
    """Compile a Dynamo graph. `options` and `settings` are the names of `config.Settings`; `mode` is one of ours (off,
    apply, tune) or one of Inductor's, which then gets it. Raises UnknownOption and InvalidOption."""
    ours = {"mode": mode} if mode in MODES else {}
    chosen = settings_from(options, call={**ours, **settings})
    if chosen.mode == "tune":
        check_authors(chosen)
    outcomes.set_verbosity(chosen.log)
    patches = inductor_patches(None if mode in MODES else mode, chosen)
    if chosen.mode == "off":
        return _inductor(gm, example_inputs, patches)
    if _to_be_saved():
        _say_once("what is compiled to be saved may be loaded where kernels are not")
        return _inductor(gm, example_inputs, patches)
    with user_signals.heard():
        planned = _planned(gm, example_inputs, chosen)
        if planned is None:
            return _inductor(gm, example_inputs, patches)
        if not planned.winners:
            return gm.forward if chosen.fallback == "eager" else _inductor(gm, example_inputs, patches)
        return _with_kernels(gm, example_inputs, patches, planned)


def _to_be_saved() -> bool:
    """Whether the compiled code goes into an artifact of its own (`aot_compile`, precompilation), which a process loads that
    never hears of us: no kernel would be adopted there."""
    import torch

    bundled = getattr(torch._functorch.config, "bundled_autograd_cache", False)
    return bool(bundled or getattr(torch._dynamo.config, "caching_precompile", False))


def inductor_patches(mode: str | None, settings: Settings) -> dict[str, Any]:
    """Inductor's configuration for a `torch.compile(mode=)` string and our setting `inductor`. Raises what Inductor
    raises for an unknown mode or option."""
    from torch._inductor import config, list_mode_options

    patches: dict[str, Any] = dict(list_mode_options(mode)) if mode else {}
    known = config.get_config_copy()
    for name, value in settings.inductor.items():
        name = name.replace("-", "_")
        if name not in known:
            raise RuntimeError(f"Unexpected optimization option {name}, known options are {sorted(known)}")
        patches[name] = value
    return patches


def _planned(gm: GraphModule, example_inputs: Sequence[Any], settings: Settings) -> Plan | None:
    """The plan, or None when our layer cannot make one."""
    from torch._dynamo.exc import RestartAnalysis

    try:
        planned = plan(gm, example_inputs, settings)
    except RestartAnalysis:  # how Dynamo asks for another trace; it travels through backends as an exception
        raise
    except ToolchainMissing as missing:
        _say_once(str(missing))
        reports.add(CompileReport(graph="", mode=settings.mode, problem=f"{type(missing).__name__}: {missing}"))
        return None
    except Exception as failure:  # guards the user's program: Inductor compiles what we could not look at
        _step_aside("while planning", failure)
        reports.add(CompileReport(graph="", mode=settings.mode, problem=f"{type(failure).__name__}: {failure}"))
        return None
    reports.add(planned.report)
    outcomes.summarize(planned.report)
    return planned


def _with_kernels(
    gm: GraphModule, example_inputs: Sequence[Any], patches: Mapping[str, Any], planned: Plan
) -> Callable[..., Any]:
    """Inductor with our pass. If that fails, Inductor alone: when it fails too, the failure is Inductor's own."""
    from torch._inductor import config

    from accelopt_compile.capture import copy_of

    untouched = copy_of(gm)  # compile_fx owns and changes what it is given
    ours = AccelOptPass(planned.winners, products=planned.backend.products, device=planned.backend.device)
    user = patches.get(HOOK, getattr(config, HOOK))
    passes = [*(user if isinstance(user, list | tuple) else [user] if user is not None else []), ours]

    def inner(graph: GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Any:
        if not kwargs.get("is_backward"):
            return compile_fx_inner(graph, inputs, **kwargs)
        alone = config.patch({HOOK: user})(compile_fx_inner)
        with user_signals.heard():  # a backward may be compiled when it is first asked for, long after this function
            try:
                spare = copy_of(graph)
            except Exception as failure:  # guards the user's program: without a second graph there are no two tries
                _step_aside("while copying a backward", failure)
                return alone(graph, inputs, **kwargs)
            return _or_else(lambda: compile_fx_inner(graph, inputs, **kwargs), lambda: alone(spare, inputs, **kwargs))

    return _or_else(
        lambda: _inductor(gm, example_inputs, {**patches, HOOK: passes}, inner),
        lambda: _inductor(untouched, example_inputs, patches),
    )


def _or_else(with_kernels: Callable[[], _Compiled], without: Callable[[], _Compiled]) -> _Compiled:
    from torch._dynamo.exc import RestartAnalysis

    try:
        return with_kernels()
    except RestartAnalysis:
        raise
    except Exception as failure:  # guards the user's program: is it our kernels, or would Inductor have failed anyway?
        compiled = without()
        _step_aside("while compiling with kernels", failure)
        return compiled


def _inductor(
    gm: GraphModule, example_inputs: Sequence[Any], patches: Mapping[str, Any], inner: Callable[..., Any] = compile_fx_inner
) -> Callable[..., Any]:
    compiled: Any = compile_fx(gm, list(example_inputs), inner_compile=inner, config_patches=dict(patches) or None)
    return cast(Callable[..., Any], compiled)


@functools.cache
def _say_once(why: str) -> None:
    """One warning a process: a model has many graphs, and each would say the same."""
    log.warning("%s; Inductor compiles alone", why)
    outcomes.count("problem")


def _step_aside(where: str, failure: Exception) -> None:
    log.warning("%s: %s: %s; Inductor compiles this graph alone", where, type(failure).__name__, failure)
    log.debug("%s", "".join(traceback.format_exception(failure)))
    outcomes.count("problem")
