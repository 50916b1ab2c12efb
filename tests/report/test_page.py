"""The page: complete in itself, and nothing that a model or a kernel says is anything but text in it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from accelopt_cache.kernel_store import Store
from accelopt_compile.records import KernelSource
from accelopt_compile.report.charts import ticks
from accelopt_compile.report.lineage import Step, Variant
from accelopt_compile.report.model import Report, report_of
from accelopt_compile.report.reading import read_run
from accelopt_compile.report.render import render
from accelopt_compile.report.wording import dollars_text, endpoint_text, seconds_text, status_text, tokens_text
from accelopt_compile.wording import visible
from tests.report.runs import HOSTILE, killed, large, searched, small

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Elements and texts of a page; unbalanced tags are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        assert [] == self.stack

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.stack.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, str]:
    """A run of some 500 kernels whose plans, sources, lessons and answers are all hostile, and its page."""
    store = Store.open(tmp_path_factory.mktemp("page") / "store")
    given = {"name": HOSTILE, "environment": {HOSTILE: HOSTILE}, "models": {"planner": HOSTILE}, "settings": {HOSTILE: HOSTILE}}
    report = report_of(read_run(searched(store, large(says=HOSTILE), **given)))
    return report, render(report)


def test_nothing_that_a_model_says_becomes_markup(hostile: tuple[Report, str]) -> None:
    """The elements are those of the template: no script, no image, no handler; the text is there, readable."""
    page = Page(hostile[1])
    assert set() == {tag for tag, _ in page.tags} & {"script", "img", "iframe", "object", "embed", "link", "base", "form", "a"}
    assert [] == [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    text = "".join(page.texts)
    assert text.count("<script>alert('x')</script></pre><img") > 100
    assert "<U+202E><U+0000>" in text and "\u202e" not in text and "\x00" not in text


def test_the_page_asks_nothing_of_a_network(hostile: tuple[Report, str]) -> None:
    """No attribute that loads, nothing in the style sheet that does, and a policy that would forbid it."""
    page = Page(hostile[1])
    loading = {"src", "href", "srcset", "xlink:href", "data", "action", "background", "poster"}
    assert [] == [(tag, a) for tag, a in page.tags if loading & set(a)]
    (style,) = re.findall(r"<style>(.*?)</style>", hostile[1], re.S)
    assert not re.search(r"url\(|@import|@font-face", style)
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'; style-src 'unsafe-inline'" == policy


def test_five_hundred_candidates_stay_a_page_that_opens(hostile: tuple[Report, str]) -> None:
    """Below four megabytes, with the way to the winner open and all else closed."""
    report, page = hostile
    assert len(page.encode()) < 4 << 20
    details = [attributes for tag, attributes in Page(page).tags if tag == "details"]
    assert sum(step.on_way for step in report.steps) == sum("open" in attributes for attributes in details)
    assert len(details) > len(report.steps)


def test_a_chart_a_question(hostile: tuple[Report, str]) -> None:
    """Against candidates, time and money, each trial with a title; without prices, no chart against money."""
    report, page = hostile
    assert 3 == page.count('role="img"') and 3 * report.evaluated == page.count("<title>") - 1
    assert page.count("baseline 1.0x") == page.count("roofline 6.67x") == 3


def test_a_run_without_a_price_has_no_chart_against_money(tmp_path: Path) -> None:
    """And says why."""
    page = render(report_of(read_run(searched(Store.open(tmp_path / "s"), large(usd=None)))))
    assert 2 == page.count('role="img"')
    assert "No price of these models is known" in page and "unknown" in page


@pytest.mark.parametrize("after", [0, 1, 5, 40])
def test_a_run_at_any_moment_has_a_page(tmp_path: Path, after: int) -> None:
    """Also one that was killed before it evaluated anything."""
    report = report_of(read_run(killed(Store.open(tmp_path / "s"), small(), after=after)))
    page = render(report)
    assert "unfinished" in page
    Page(page)


def test_a_line_of_four_hundred_generations_is_drawn(tmp_path: Path) -> None:
    """Depth is no recursion, neither in the tree nor in the template."""
    report = report_of(read_run(searched(Store.open(tmp_path / "s"), small())))
    source = KernelSource(language="cpp", text="x")
    steps = tuple(
        Step(
            parent=n - 1 if n else None,
            plan=f"plan {n}",
            origin="llm",
            source=source,
            depth=n,
            children=n < 399,
            close=399 if n == 399 else 0,
            variants=(Variant(id=n, tunables={}, speedup=1.0),),
        )
        for n in range(400)
    )
    page = render(Report(**{**vars(report), "steps": steps}))
    Page(page)
    assert all(f"plan {n}" in page for n in (0, 200, 399))


def test_words_for_numbers() -> None:
    """As people read them, and keys in a URL are not for anybody."""
    assert ["0 s", "90 s", "10 min", "2.5 h"] == [seconds_text(s) for s in (0, 90, 600, 9000)]
    assert ["$0.00", "$0.002", "$0.05", "$12.50"] == [dollars_text(d) for d in (0, 0.002, 0.05, 12.5)]
    assert ["12", "12.3k", "1M", "1.23M"] == [tokens_text(n) for n in (12, 12345, 999_600, 1_234_567)]
    assert [0.0, 0.25, 0.5, 0.75, 1.0] == ticks(0, 1, 4) and [0, 200, 400] == ticks(0, 458, 4)
    assert "https://host:8000/v1" == endpoint_text("https://user:secret@host:8000/v1?key=secret")
    assert "a\n\tb<U+200B><U+D800>" == visible("a\r\n\tb\u200b\ud800")


def test_a_page_of_estimates_calls_every_speedup_one(tmp_path: Path) -> None:
    """In the headline, the tiles, the steps and the charts; nothing has an interval, which only a measurement has."""
    from tests.search.test_estimates import world

    store = Store.open(tmp_path / "store")
    report = report_of(read_run(searched(store, world(), settings={"estimated": True})))
    page = render(report)
    assert "estimated" == report.basis
    assert "nothing was timed, and no kernel is launched" in page
    assert "best estimated speedup so far" in page
    assert "proven in simulation" in page
    assert "proven in full" not in page
    assert "95 %" not in page
    bare = re.findall(r".{30}(?<!estimated )(?<![\d.])\d+\.\d{2,3}x", page)
    assert [] == [found for found in bare if "roofline" not in found]


def test_a_status_says_estimated() -> None:
    """What `runs ls` shows."""
    assert "candidate, estimated 1.42x" == status_text("candidate", 1.42, "estimated")
    assert "winner 1.42x" == status_text("winner", 1.42)
