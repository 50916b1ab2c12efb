"""A report as one HTML file that asks nothing of any network: style and charts are in it, scripts are not.

All text comes from models and kernels and is escaped by the template engine; should that ever fail, the page's own
content policy forbids scripts and requests.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from accelopt_compile.report import charts, wording
from accelopt_compile.report.history import Dot
from accelopt_compile.report.model import Report
from accelopt_compile.wording import times_text, visible

CALLS_SHOWN = 400
"""Calls whose answers are shown, the latest; the table of costs counts all."""


def render(report: Report) -> str:
    """The page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "seconds": wording.seconds_text,
        "tokens": wording.tokens_text,
        "dollars": wording.dollars_text,
        "choices": wording.choices_text,
        "line_class": _line_class,
    }
    return environment.get_template("template.html.j2").render(
        report=report,
        charts=_charts(report),
        legend=[group for group in _LEGEND if any(dot.group == group for dot in report.dots)],
        group_class=charts.group_class,
        bar=charts.bar,
        times=lambda speedup, digits=2: times_text(speedup, report.basis, digits),
        headline=headline(report),
        money=wording.money_text(report.usd, calls=len(report.calls), unpriced=report.unpriced),
        money_of=wording.money_text,
        calls=report.calls[-CALLS_SHOWN:],
    )


_LEGEND = ("seed", "built-in", "model", "final", *charts.CROSSES)


def headline(report: Report) -> str:
    """The outcome in one sentence."""
    best = report.best
    if best is not None and report.basis == "estimated":
        told = f"{report.outcome}: {times_text(best.timing.speedup, report.basis)} the region without fusion, by a model"
        return f"{told} of {report.target}; nothing was timed, and no kernel is launched"
    if report.outcome == "winner" and best is not None:
        return f"{best.timing.speedup:.2f}x the baseline, 95 % between {best.timing.low:.2f}x and {best.timing.high:.2f}x"
    so_far = "" if best is None else f"; the fastest kernel so far runs at {best.timing.speedup:.2f}x the baseline"
    if report.resumable or report.outcome == "running":
        return f"{report.outcome}{so_far}"
    return f"{report.outcome}: {report.reason}" if report.reason else report.outcome


def _charts(report: Report) -> list[tuple[str, Markup]]:
    if not report.dots:
        return []
    axes = [("Against candidates", charts.TRIALS), ("Against time", charts.SECONDS)]
    if report.priced and any(dot.usd > 0 for dot in report.dots):
        axes.append(("Against money", charts.DOLLARS))
    dots: tuple[Dot, ...] = report.dots
    return [(title, charts.step_chart(dots, axis, roofline=report.roofline)) for title, axis in axes]


def _shown(value: object) -> object:
    return value if isinstance(value, Markup) else visible(value)


def _line_class(line: str) -> str:
    return {"+": "add", "-": "del", "@": "at"}.get(line[:1], "same")
