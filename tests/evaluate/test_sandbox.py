"""The child processes: limited, never left behind, and of no consequence to the next one."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from native_backend import NativeBackend, sample

from accelopt_backends.cpp import CppBackend, toolchain
from accelopt_backends.reference import ReferenceBackend
from accelopt_compile.errors import EvaluatorDied
from accelopt_compile.evaluate import Limits, open_evaluator
from accelopt_compile.evaluate.clocking import RunnerRig, Stopped
from accelopt_compile.evaluate.sandbox import forks, forkserver
from accelopt_compile.evaluate.sandbox.host import Birth, Child, ChildFailed
from accelopt_compile.evaluate.sandbox.surroundings import baselines_folder, child_environment
from accelopt_compile.records import Accepted, Node, Rejected, Workload
from tests.evaluate.workloads import softmax_workload


def running(pid: int) -> bool:
    """Whether `pid` is a live process (a zombie is not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def soon(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    end = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def test_closing_ends_every_child(cache_root: Path, tmp_path: Path) -> None:
    """After the context the referee, the nursery and the builder are gone."""
    with open_evaluator(
        softmax_workload(), {"s0": 8}, backend=NativeBackend(), threads=1, seed=1, workdir=str(tmp_path)
    ) as evaluator:
        evaluator.evaluate(sample(replace={"out[c] /= total": "out[c] = 7"}), {"WIDTH": 1})
        pids = evaluator.pids()
        assert 3 == len(pids)
        assert all(running(pid) for pid in pids)
    assert soon(lambda: not any(running(pid) for pid in pids))


def huge_kib(pid: int) -> int:
    """KiB of a process's own memory that lie on huge pages."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))


def test_right_answers_lie_on_huge_pages(cache_root: Path, tmp_path: Path) -> None:
    """A referee makes many large tensors; page faults took a third of its time. Other children have what the user's process
    has."""
    offered = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not offered.exists() or "[never]" in offered.read_text():
        pytest.skip("this machine has no transparent huge pages")
    with open_evaluator(
        softmax_workload(), {"s0": 1 << 13}, backend=NativeBackend(), threads=1, seed=1, workdir=str(tmp_path)
    ) as evaluator:
        assert isinstance(evaluator.evaluate(sample(), {"WIDTH": 1}, effort="quick"), Accepted)
        assert 1 == sum(huge_kib(pid) >= 2 << 10 for pid in evaluator.pids())


def test_an_exception_in_the_caller_ends_every_child(cache_root: Path, tmp_path: Path) -> None:
    """Ctrl-C while a kernel hangs: the context ends the children on the way out."""
    pids: list[int] = []
    begin = time.monotonic()
    with (
        pytest.raises(KeyboardInterrupt),
        open_evaluator(
            softmax_workload(), {"s0": 8}, backend=NativeBackend(), threads=1, seed=1, workdir=str(tmp_path)
        ) as evaluator,
    ):
        pids.append(evaluator.pids()[0])
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 3.0)
        evaluator.evaluate(sample(before="for (volatile int i = 0; i < 1; i = 0) {}"), {"WIDTH": 1})
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert time.monotonic() - begin < 30
    assert soon(lambda: not running(pids[0]))


def test_killing_the_host_ends_everything(cache_root: Path, tmp_path: Path) -> None:
    """When the user's process is killed outright, fork server and children die with it."""
    script = (
        "import sys, time; sys.path[:0] = [sys.argv[1]]\n"
        "from tests.evaluate.workloads import softmax_workload\n"
        "from accelopt_backends.reference import ReferenceBackend\n"
        "from accelopt_compile.evaluate import open_evaluator\n"
        "from accelopt_compile.evaluate.sandbox import forkserver\n"
        "with open_evaluator(softmax_workload(), {'s0': 8}, backend=ReferenceBackend(), threads=1, seed=1, workdir='.') as e:\n"
        "    print(e.pids()[0], forkserver._server._process.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    host = subprocess.Popen(
        [sys.executable, "-c", script, str(Path(__file__).parent)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ.copy(),
    )
    assert host.stdout is not None
    pids = [int(text) for text in host.stdout.readline().split()]
    host.kill()
    host.wait()
    host.stdout.close()
    assert 2 == len(pids)
    assert soon(lambda: not any(running(pid) for pid in pids))


def birth(tmp_path: Path, role: Any = "builder") -> Birth:
    return Birth(role=role, scratch=str(tmp_path), limits=Limits(), inductor_cache=str(tmp_path))


def test_without_a_fork_server_the_evaluator_says_so(cache_root: Path, tmp_path: Path) -> None:
    """Where it does not start in time, that is our failure, not a verdict on a kernel."""
    forkserver.stop()
    with pytest.raises(EvaluatorDied, match="did not start"):
        Child(Birth(role="builder", scratch=str(tmp_path), limits=Limits(start_s=0.0001), inductor_cache=str(tmp_path)))


def test_a_child_answers_an_unknown_request_and_lives(cache_root: Path, tmp_path: Path) -> None:
    """A request it does not know, or that is incomplete, is answered as an error."""
    child = Child(birth(tmp_path))
    assert "unknown" in child.request({"op": "nonsense"}, 30)["error"]
    assert "error" in child.request({"op": "build"}, 30)
    child.close()


def test_a_dead_child_fails_the_request_and_says_how_it_died(cache_root: Path, tmp_path: Path) -> None:
    """A request to a child that was killed raises ChildFailed naming the signal."""
    child = Child(birth(tmp_path))
    child.request({"op": "nonsense"}, 30)
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildFailed) as failed:
        child.request({"op": "nonsense"}, 30)
    assert not failed.value.timed_out
    assert not child.alive


def test_a_fork_of_the_program_leaves_its_children_alone(cache_root: Path, tmp_path: Path) -> None:
    """It may end hours later, and whoever has that number then is a stranger."""
    child = Child(birth(tmp_path))
    forked = os.fork()
    if forked == 0:
        child.close()
        os._exit(0)
    assert 0 == os.waitpid(forked, 0)[1]
    assert "unknown" in child.request({"op": "nonsense"}, 30)["error"]
    child.close()


def test_a_child_that_does_not_end_is_waited_for_later(tmp_path: Path) -> None:
    """A device's driver may hold a killed process for minutes: nothing else that is asked of its parent waits."""
    stuck = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    dying: set[int] = set()
    try:
        assert signal.SIGKILL == forks.reaped(stuck.pid, dying, patience_s=0.05)
        assert {stuck.pid} == dying
    finally:
        stuck.kill()
        stuck.wait()


def test_a_child_that_reads_nothing_is_given_up(cache_root: Path, tmp_path: Path) -> None:
    """A message larger than a socket holds would keep the program for ever."""
    child = Child(Birth(role="builder", scratch=str(tmp_path), limits=Limits(start_s=2.0), inductor_cache=str(tmp_path)))
    assert "unknown" in child.request({"op": "nonsense"}, 30)["error"]
    os.kill(child.pid, signal.SIGSTOP)
    with pytest.raises(ChildFailed) as failed:
        child.send({"op": "nonsense", "rest": "x" * (8 << 20)})
    assert failed.value.timed_out
    assert soon(lambda: not running(child.pid))


class Liar:
    """A runner that answers everything with one thing."""

    def __init__(self, reply: dict[str, Any]) -> None:
        self.reply = reply

    def request(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        return self.reply


def test_a_runner_that_sends_no_times_is_no_crash(cache_root: Path, tmp_path: Path) -> None:
    """What it sends is the candidate's to write: the graph's other kernels must not be lost over it."""
    with open_evaluator(
        softmax_workload(), {"s0": 8}, backend=NativeBackend(), threads=1, seed=1, workdir=str(tmp_path)
    ) as evaluator:
        for reply in ({}, {"repeats": 5}, {"repeats": [[1, 10**400], [1, 1]]}, {"repeats": [[1, float("nan")], [1, 1]]}):
            liar: Any = Liar(reply)
            with pytest.raises(Stopped, match="no times"):
                RunnerRig(evaluator._clocking, liar, "kernel", "eager").repeats()


def test_only_listed_variables_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and tokens stay with the user; PATH goes on; home and temporary folder are the scratch folder."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    environment = child_environment("/scratch", "/cache")
    assert "OPENAI_API_KEY" not in environment
    assert os.environ["PATH"] == environment["PATH"]
    assert ("/scratch", "/scratch") == (environment["HOME"], environment["TMPDIR"])


def test_kernels_are_judged_at_the_level_that_the_user_lowered(
    cache_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ATEN_CPU_CAPABILITY=avx2, which PyTorch and Inductor follow, the kernel that is timed has no 512-bit instruction."""
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    toolchain.find.cache_clear()
    try:
        backend = CppBackend()
        source = backend.seed(softmax_workload())
        with open_evaluator(
            softmax_workload(), {"s0": 8}, backend=backend, threads=1, seed=1, workdir=str(tmp_path)
        ) as evaluator:
            verdict = evaluator.evaluate(source, source.defaults())
    finally:
        toolchain.find.cache_clear()
    assert isinstance(verdict, Accepted), verdict
    if shutil.which("objdump") and platform.machine() == "x86_64":
        assert (0, True) == (verdict.features["zmm"], verdict.features["ymm"] > 0)


def impossible() -> Workload:
    """A workload with an operator that no torch has."""
    good = softmax_workload()
    node = Node(op="aten.no_such_thing.default", args=good.nodes[0].args, outputs=good.nodes[0].outputs)
    return Workload(inputs=good.inputs, nodes=(node,), outputs=good.outputs[:0], output_specs=(), symbols=("s0",))


def test_a_workload_that_cannot_run_is_our_error_not_a_verdict(cache_root: Path, tmp_path: Path) -> None:
    """An operator that this torch does not have raises EvaluatorDied when the evaluator opens."""
    with (
        pytest.raises(EvaluatorDied, match="no_such_thing"),
        open_evaluator(impossible(), {"s0": 4}, backend=ReferenceBackend(), threads=1, seed=1, workdir=str(tmp_path)),
    ):
        pass


def test_an_evaluator_that_cannot_start_keeps_nothing(cache_root: Path, tmp_path: Path) -> None:
    """A process that meets such a region again and again runs out of nothing: no descriptor, no folder stays."""
    held = []
    for _ in range(3):
        with (
            pytest.raises(EvaluatorDied),
            open_evaluator(impossible(), {"s0": 4}, backend=ReferenceBackend(), threads=1, seed=1, workdir=str(tmp_path)),
        ):
            pass
        held.append(len(os.listdir("/proc/self/fd")))
    assert held[0] == held[-1]


def test_what_would_take_more_memory_than_is_free_is_not_begun(cache_root: Path, tmp_path: Path) -> None:
    """A search must not have the user's program killed."""
    with (
        pytest.raises(EvaluatorDied, match=r"takes about \d+\.\d GiB, and \d+\.\d GiB are free"),
        open_evaluator(softmax_workload(), {"s0": 1 << 36}, backend=ReferenceBackend(), threads=1, seed=1, workdir=str(tmp_path)),
    ):
        pass


def test_the_reference_backend_is_right_and_improves_with_fewer_passes(cache_root: Path, tmp_path: Path) -> None:
    """The kernel that needs no compiler passes verification in both forms, screens imports, and declares what to change."""
    backend, workload = ReferenceBackend(), softmax_workload()
    with open_evaluator(workload, {"s0": 64}, backend=backend, threads=1, seed=1, workdir=str(tmp_path)) as evaluator:
        slow = evaluator.evaluate(backend.seed(workload), {"REPEAT": 2})
        fast = evaluator.evaluate(backend.render(workload, {"passes": "1"}), {"REPEAT": 1})
        hostile = backend.seed(workload)
        hostile = type(hostile)(language="reference", text="import os\n" + hostile.text, tunables=hostile.tunables)
        refused = evaluator.evaluate(hostile, {"REPEAT": 1})
    assert isinstance(slow, Accepted), slow
    assert isinstance(fast, Accepted), fast
    assert fast.timing.kernel_us < slow.timing.kernel_us
    assert isinstance(refused, Rejected)
    assert "line 1" in refused.diagnosis


def test_a_forked_child_may_use_threads(cache_root: Path, tmp_path: Path) -> None:
    """Parallel regions work in the forked child, because the fork server never ran one."""
    backend, workload = ReferenceBackend(), softmax_workload()
    with open_evaluator(workload, {"s0": 4096}, backend=backend, threads=2, seed=1, workdir=str(tmp_path)) as evaluator:
        verdict = evaluator.evaluate(backend.render(workload, {"passes": "1"}), {"REPEAT": 1})
    assert isinstance(verdict, Accepted), verdict
    assert 2 == verdict.timing.threads


def test_root_that_cannot_be_written_costs_no_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Baselines are then compiled into a folder of this process, the same at every call."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "file"))
    folder = Path(baselines_folder())
    assert folder.is_dir()
    assert folder == Path(baselines_folder())
    assert tmp_path not in folder.parents


def test_an_interrupt_amid_a_fork_costs_no_later_search(cache_root: Path, tmp_path: Path) -> None:
    """The answer that nobody read would be taken for the next one's: that server is asked no more, and another one serves."""
    first = Child(birth(tmp_path))
    server = forkserver._server
    assert server is not None
    os.kill(server._process.pid, signal.SIGSTOP)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            Child(birth(tmp_path))
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.kill(server._process.pid, signal.SIGCONT)
    first.close()
    assert soon(lambda: not running(first.pid))
    second = Child(birth(tmp_path))
    assert "unknown" in second.request({"op": "nonsense"}, 30)["error"]
    assert forkserver._server is not server
    second.close()


def test_a_fork_server_that_ends_says_why(cache_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Python is embedded in another program, that program is no interpreter."""
    forkserver.stop()
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(EvaluatorDied, match="ended with exit code 1: it said nothing"):
        Child(birth(tmp_path))


def test_a_builder_that_died_idle_is_replaced(cache_root: Path, tmp_path: Path) -> None:
    """It is nobody's verdict."""
    with open_evaluator(
        softmax_workload(), {"s0": 8}, backend=NativeBackend(), threads=1, seed=1, workdir=str(tmp_path)
    ) as evaluator:
        assert isinstance(evaluator.evaluate(sample(replace={"out[c] /= total": "out[c] = 7"}), {"WIDTH": 1}), Rejected)
        (builder,) = evaluator._crew._builders.values()
        os.kill(builder.pid, signal.SIGKILL)
        assert soon(lambda: not running(builder.pid))
        found = evaluator.evaluate(sample(replace={"out[c] /= total": "out[c] = 8"}), {"WIDTH": 1})
        assert isinstance(found, Rejected)
        assert "numerics" == found.stage.value


def test_a_baseline_that_comes_to_no_end_decides_nothing(cache_root: Path, tmp_path: Path) -> None:
    """Taken for a region that Inductor cannot compile, a kernel slower than Inductor's would win and stay."""
    with (
        open_evaluator(
            softmax_workload(),
            {"s0": 8},
            backend=NativeBackend(),
            threads=1,
            seed=1,
            workdir=str(tmp_path),
            limits=Limits(baseline_s=0.01),
        ) as evaluator,
        pytest.raises(EvaluatorDied, match="Inductor did not compile the region to compare with: no answer within"),
    ):
        evaluator.evaluate(sample(), {"WIDTH": 1})
