"""The documents say what is true: paths exist, tables come from results, snippets are code that runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.table import pages

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *(ROOT / room / "README.md" for room in ("backends", "cache", "benchmarks"))]


def test_every_path_in_architecture_exists() -> None:
    """A file that moves takes its line in ARCHITECTURE.md along."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = {span for span in re.findall(r"`([\w./]+)`", text) if "/" in span}
    assert [] == sorted(path for path in named if not (ROOT / path).exists())
    assert len(named) > 20


def test_every_link_leads_somewhere() -> None:
    """Relative links of all documents exist, headings included."""
    broken = []
    for document in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?:)([^)]+)\)", document.read_text()):
            path, _, heading = target.partition("#")
            place = (document.parent / path) if path else document
            headings = re.findall(r"^#+ (.*)$", place.read_text(), re.M) if place.is_file() else []
            if not place.exists() or (heading and heading not in [h.lower().replace(" ", "-") for h in headings]):
                broken.append(f"{document.name}: {target}")
    assert [] == broken


def test_tables_are_those_of_the_results() -> None:
    """README.md and benchmarks/RESULTS.md show what `python -m benchmarks.table` makes of benchmarks/results."""
    for page, text in pages().items():
        assert text == page.read_text(), page


def test_readme_counts_no_more_hostile_kernels_than_there_are() -> None:
    """The round number that it names is one that the corpus exceeds."""
    (said,) = re.findall(r"over (\d+) hostile kernels in C\+\+", (ROOT / "README.md").read_text())
    assert int(said) < len(list((ROOT / "tests/kernels/hostile").glob("*.cpp")))


def test_every_workload_is_described() -> None:
    """benchmarks/README.md names each module of benchmarks/workloads."""
    text = (ROOT / "benchmarks/README.md").read_text()
    modules = [path.stem for path in (ROOT / "benchmarks/workloads").glob("[!_]*.py")]
    assert [] == sorted(name for name in modules if f"`{name}`" not in text)


def test_contributing_fits_on_a_page() -> None:
    """Eighty lines are as much as anybody reads."""
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) < 80


def test_no_file_of_ours_names_a_registry() -> None:
    """Which registry packages come from is the machine's business, so none is named in what `make` reads."""
    for name in ("Makefile", "constraints.txt", "pyproject.toml", ".ci/run"):
        assert not re.search(r"index-url|find-links|https?://", (ROOT / name).read_text()), name


@pytest.mark.parametrize("number", range(len(re.findall(r"```python\n", (ROOT / "README.md").read_text()))))
def test_readme_python_runs(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each Python snippet of README.md runs as it stands, in a new store."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    snippet = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[number]
    exec(compile(snippet, "README.md", "exec"), {})
    assert "torch.Size([8, 64])" in capsys.readouterr().out
