"""`accelopt cache ...` on a store with two records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from accelopt_cache.kernel_store import Store
from accelopt_compile.cli import run
from accelopt_compile.cli.output import Output, report_error
from accelopt_compile.records import ErrorReport, KernelSource, Node, Record, Ref, TensorSpec, Timing, Workload

SOURCE = 'extern "C" int accelopt_kernel(void* const*, const int64_t*, int64_t) { return 0; }\n'


def relu(columns: int) -> Workload:
    spec = TensorSpec(dtype="f32", shape=("s0", columns), strides=(columns, 1))
    node = Node(op="aten.relu.default", args=(Ref("i", 0),), outputs=(spec,))
    return Workload(inputs=(spec,), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(spec,), symbols=("s0",))


def winner(workload: Workload) -> Record:
    return Record(
        outcome="winner",
        workload=workload.digest,
        target="cpp-test",
        binding={"s0": 8},
        source=KernelSource(language="cpp", text=SOURCE),
        timing=Timing(
            kernel_us=2.0, baselines_us={"eager": 9.0, "inductor": 3.0}, speedup=1.5, low=1.4, high=1.6, blocks=9, threads=1
        ),
        errors=ErrorReport(worst_share=0.25, cases=40),
        environment={"compiler": "g++ 12"},
        provenance={"candidates": 7},
        created="2026-11-27T00:00:00Z",
    )


@pytest.fixture
def ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Ids of a winner and of a baseline record in the store that the commands see."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    store = Store.open()
    baseline = Record(
        outcome="baseline", workload=relu(5).digest, target="cpp-test", binding={"s0": 8}, reason="no kernel was faster"
    )
    return {"winner": store.put(winner(relu(4)), relu(4)), "baseline": store.put(baseline, relu(5))}


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, object]:
    """(exit code, the JSON on stdout) of a command."""
    code = run([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_ls_lists_the_fastest_first(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """The winner comes before the baseline, each with the region's operators."""
    code, found = answer(capsys, "cache", "ls")
    assert isinstance(found, list)
    assert (0, [ids["winner"], ids["baseline"]]) == (code, [line["id"] for line in found])
    assert "relu" == found[0]["operators"]


def test_ls_tells_records_of_one_workload_apart(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """One for each number of threads looked like the same line twice."""
    Store.open().put(replace(winner(relu(4)), environment={"threads": "7"}), relu(4))
    assert 0 == run(["cache", "ls", "--outcome", "winner"])
    head, *rows = capsys.readouterr().out.splitlines()
    at = head.index("threads")
    assert {"7", "-"} == {row[at:].split()[0] for row in rows}


def test_show_source_prints_the_kernel_and_nothing_else(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """`cache show ID --source` can be redirected into a file and compiled."""
    assert 0 == run(["cache", "show", ids["winner"][:10], "--source"])
    assert SOURCE.strip() == capsys.readouterr().out.strip()


def test_show_takes_the_workload_that_log_lines_name(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Where it has one record; of several each is named, since a digest says not which is meant."""
    assert 0 == run(["cache", "show", relu(4).digest[:8]])
    assert f"record:        {ids['winner']}" in capsys.readouterr().out
    other = Store.open().put(replace(winner(relu(4)), binding={"s0": 99}), relu(4))
    assert 2 == run(["cache", "show", relu(4).digest[:8]])
    said = capsys.readouterr().err
    assert "a workload with 2 records" in said and ids["winner"][:12] in said and other[:12] in said


def test_show_workload_prints_python_that_runs(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """The reference that a record carries needs nothing but torch."""
    torch = pytest.importorskip("torch")
    assert 0 == run(["cache", "show", ids["winner"], "--workload"])
    names: dict[str, object] = {}
    exec(capsys.readouterr().out, names)
    forward = names["forward"]
    assert callable(forward)
    (result,) = forward(None, torch.full((8, 4), -1.0))
    assert torch.equal(torch.zeros(8, 4), result)


def test_explain_names_what_makes_a_record_unusable_here(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A record of a target that this machine does not have is not trusted, and the text says so."""
    code, found = answer(capsys, "cache", "explain", ids["winner"])
    assert isinstance(found, dict)
    assert (0, False, "never") == (code, found["trusted"], found["reuse"])
    assert any("cpp-test is not available here" in line for line in found["lines"])


def test_explain_of_a_stranger_names_the_nearest_entry_and_the_field(
    ids: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A workload that differs in one size is told which size."""
    stranger = tmp_path / "workload.json"
    stranger.write_text(relu(6).to_text())
    code, found = answer(capsys, "cache", "explain", str(stranger))
    assert isinstance(found, dict)
    assert (0, 1.0) == (code, found["nearest"][0]["likeness"])
    assert found["nearest"][0]["differs"].startswith("inputs[0][1][1] is 6, in the stored one ")


def test_verify_finds_a_damaged_source_and_quarantines_it(
    ids: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed byte is exit code 4; once quarantined, the store is clean again."""
    (blob,) = (p for p in (tmp_path / "store/v1/blobs").rglob("*") if p.is_file())
    blob.write_text(SOURCE.replace("return 0", "return 1"))
    code, found = answer(capsys, "cache", "verify", "--quarantine")
    assert isinstance(found, dict)
    assert (4, [ids["winner"]]) == (code, list(found["damaged"]))
    assert (0, {"checked": 1, "damaged": {}, "quarantined": False}) == answer(capsys, "cache", "verify")


def test_rm_needs_a_yes_where_nobody_can_answer(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, `rm` refuses with exit code 2 and removes nothing; with --yes it removes."""
    assert 2 == run(["cache", "rm", ids["winner"]])
    assert "--yes" in capsys.readouterr().err
    assert (0, {"removed": [ids["winner"]]}) == answer(capsys, "cache", "rm", ids["winner"], "--yes")
    _, found = answer(capsys, "cache", "ls")
    assert isinstance(found, list)
    assert [ids["baseline"]] == [line["id"] for line in found]


def test_an_unknown_id_is_a_usage_error_with_the_next_step(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the value, the reason and the command that helps, without a traceback."""
    assert 2 == run(["cache", "show", "zzzz"])
    error = capsys.readouterr().err
    assert "'zzzz'" in error and "accelopt cache ls" in error and "Traceback" not in error


def test_dir_and_stats_describe_the_store(ids: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`dir` prints one path; `stats` counts winners by target."""
    assert 0 == run(["cache", "dir"])
    assert str(tmp_path / "store") == capsys.readouterr().out.strip()
    _, found = answer(capsys, "cache", "stats")
    assert isinstance(found, dict)
    assert ({"cpp-test": 1}, 1) == ({t: n for t, n in found["winners"].items() if n}, found["baselines"])


def test_gc_dry_run_removes_nothing(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run says what would go, and young entries never do."""
    code, found = answer(capsys, "cache", "gc", "--dry-run")
    assert isinstance(found, dict)
    assert (0, [], True) == (code, found["removed"], found["dry_run"])


ORDERS = "\x1b[2J\x9b31m\x9d0;title\x9c\u202eevil\u200b\ufeff\x07"


@pytest.mark.parametrize("command", [["show"], ["show", "--source"], ["explain"], ["ls"]])
def test_no_text_of_a_record_gives_the_terminal_orders(
    ids: dict[str, str], capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """What a model or a stranger wrote is shown with the numbers of such characters; lines and tabs stay."""
    record = winner(relu(6))
    hostile = replace(
        record,
        source=KernelSource(language="cpp", text=f"int f();\t// {ORDERS}\n"),
        reason=ORDERS,
        environment={"compiler": ORDERS},
        provenance={"models": ORDERS},
    )
    id = Store.open().put(hostile, relu(6))
    assert 0 == run(["cache", *command, *([] if command == ["ls"] else [id])])
    shown = capsys.readouterr()
    assert [] == [c for c in ORDERS if not c.isprintable() and c in shown.out + shown.err]
    assert ("--source" in command) == ("int f();\t// <U+001B>[2J<U+009B>31m" in shown.out and shown.out.startswith("int f();"))


def test_every_way_to_show_text_makes_it_visible(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines, notes, tables, titles and errors."""
    out = Output(as_json=False, level=0)
    out.line(ORDERS)
    out.note(ORDERS)
    out.table([ORDERS], [[ORDERS]], title=ORDERS)
    report_error(ORDERS)
    shown = capsys.readouterr()
    assert [] == [c for c in ORDERS if not c.isprintable() and c in shown.out + shown.err]


def test_a_store_without_a_name_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """`--cache-dir "$UNSET"` would make a store in the working directory."""
    assert 2 == run(["cache", "dir", "--cache-dir", ""])
    assert "it is empty; name a directory" in capsys.readouterr().err
