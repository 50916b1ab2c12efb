"""Charts as inline SVG: steps of the best speedup so far, above them every trial as a point. Colours are classes of the
page's style sheet, so that they follow the reader's light or dark scheme; every text is escaped here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from accelopt_compile.report.history import Dot
from accelopt_compile.report.wording import dollars_text, seconds_text, time_unit
from accelopt_compile.wording import times_text, visible

WIDTH, HEIGHT = 400, 290
"""Of the view box. A chart is as wide as a phone's column, so letters of 12 stay readable there and on a desktop."""

_LEFT, _RIGHT, _TOP, _BOTTOM, _LANE = 44, 12, 12, 40, 22
_FLOOR = HEIGHT - _BOTTOM - _LANE
"""Where the plot ends and the lane of the rejected begins."""

ROOFLINE_WITHIN = 3.0
"""A roofline beyond this times the fastest kernel is told, not drawn: it would squeeze everything else."""

CROSSES = ("not built", "refused", "crashed", "wrong", "too slow")
"""Groups that lie in the lane of the rejected, drawn as crosses."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What a chart's trials are drawn against. `of` is the value of a trial, `say` writes a tick, and ticks are round
    numbers of the `unit` for an axis of a length."""

    title: str
    of: Callable[[Dot], float]
    say: Callable[[float], str]
    unit: Callable[[float], float] = lambda length: 1.0


TRIALS = Axis(title="candidates evaluated", of=lambda dot: float(dot.number), say=lambda value: f"{value:g}")
SECONDS = Axis(title="time worked on the run", of=lambda dot: dot.seconds, say=seconds_text, unit=time_unit)
DOLLARS = Axis(title="spent on models", of=lambda dot: dot.usd, say=dollars_text)


def step_chart(dots: Sequence[Dot], axis: Axis, *, roofline: float | None) -> Markup:
    """The best quick timing so far against `axis`."""
    right = max((axis.of(dot) for dot in dots), default=0.0) or 1.0
    low, high = _limits([dot.speedup for dot in dots if dot.speedup is not None], roofline)

    def x(value: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * value / right

    def y(speedup: float) -> float:
        share = math.log(min(max(speedup, low), high) / low) / math.log(high / low)
        return _FLOOR - (_FLOOR - _TOP) * share

    parts = [_frame(axis, right, low, high, x, y), *(_mark(dot, x(axis.of(dot)), y) for dot in dots)]
    parts += [_steps(dots, axis, x, y), _level(y(1.0), "baseline", "baseline 1.0x")]
    if roofline is not None and roofline <= high:
        parts.append(_level(y(roofline), "roofline", f"roofline {roofline:.2f}x"))
    how = "estimated " if any(dot.basis == "estimated" for dot in dots) else ""
    label = escape(f"best {how}speedup so far against {axis.title}")
    return Markup(f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>')


def ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers from `low` to `high`."""
    rough = (high - low) / max(count, 1) or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((power * m for m in (1, 2, 2.5, 5) if power * m >= rough), power * 10)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 10) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def bar(share: float, group: str) -> Markup:
    """A bar of `share` (0 to 1) of the width it is given."""
    width = 100 * min(max(share, 0.0), 1.0)
    return Markup(
        f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" width="100" height="10"/><rect class="{group_class(group)}" width="{width:.2f}" height="10"/></svg>'
    )


def _limits(speedups: Sequence[float], roofline: float | None) -> tuple[float, float]:
    """The speedups between which the chart is drawn, on a logarithmic scale; slower kernels lie on its floor."""
    top = max([1.0, *speedups])
    if roofline is not None and top < roofline <= ROOFLINE_WITHIN * top:
        top = roofline
    ranked = sorted([1.0, *speedups])
    # The slowest twentieth would take the room that the differences between the fast ones need.
    bottom = min(max(ranked[len(ranked) // 20], top / 50), 0.95)
    return bottom * 0.93, top * 1.08


def _frame(axis: Axis, right: float, low: float, high: float, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    lines = [f'<rect class="lane" x="{_LEFT}" y="{_FLOOR}" width="{WIDTH - _LEFT - _RIGHT}" height="{_LANE}"/>']
    for value in _speed_ticks(low, high):
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        lines.append(f'<text x="{_LEFT - 5}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}x</text>')
    for value in (axis.unit(right) * n for n in ticks(0, right / axis.unit(right), 4)):
        anchor = "end" if x(value) > WIDTH - 36 else "middle"
        said = escape(axis.say(value))
        lines.append(
            f'<line class="axis" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{_FLOOR + _LANE}" y2="{_FLOOR + _LANE + 4}"/>'
        )
        lines.append(f'<text x="{x(value):.1f}" y="{HEIGHT - _BOTTOM + 17}" text-anchor="{anchor}">{said}</text>')
    floor = _FLOOR + _LANE
    lines.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{floor}H{WIDTH - _RIGHT}"/>')
    lines.append(f'<text x="{(WIDTH + _LEFT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(axis.title)}</text>')
    return "".join(lines)


def _speed_ticks(low: float, high: float) -> list[float]:
    if high / low < 6:
        return ticks(low, high, 5)
    powers = (10.0**p for p in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1))
    return [power * m for power in powers for m in (1, 2, 3, 5) if low <= power * m <= high]


def _level(y: float, css: str, told: str) -> str:
    line = f'<line class="{css}" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + f'<text class="{css}" x="{WIDTH - _RIGHT - 3}" y="{y - 4:.1f}" text-anchor="end">{escape(told)}</text>'


def _steps(dots: Sequence[Dot], axis: Axis, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    path, last = "", None
    for dot in dots:
        if dot.best is not None and dot.best != last:
            at = x(axis.of(dot))
            path += f"M{at:.1f} {y(dot.best):.1f}" if last is None else f"H{at:.1f}V{y(dot.best):.1f}"
            last = dot.best
    return f'<path class="best" d="{path}H{WIDTH - _RIGHT}"/>' if path else ""


def _mark(dot: Dot, x: float, y: Callable[[float], float]) -> str:
    title = f"<title>{escape(visible(f'#{dot.number} {_speed(dot)} {dot.group}: {dot.told}'))}</title>"
    css = group_class(dot.group)
    if dot.speedup is None:
        lanes = CROSSES if dot.group in CROSSES else (*CROSSES, dot.group)
        at = _FLOOR + 4 + (_LANE - 8) * lanes.index(dot.group) / (len(lanes) - 1)
        return f'<path class="x {css}" d="M{x - 2:.1f} {at - 2:.1f}l4 4m0-4l-4 4">{title}</path>'
    at = y(dot.speedup)
    if dot.effort == "full":
        whisker = f"M{x:.1f} {y(dot.low):.1f}V{y(dot.high):.1f}" if dot.low > 0 else ""
        diamond = f"M{x:.1f} {at - 5:.1f}l5 5l-5 5l-5-5z"
        return f'<path class="whisker" d="{whisker}"/><path class="{css}" d="{diamond}">{title}</path>'
    return f'<circle class="{css}" cx="{x:.1f}" cy="{at:.1f}" r="2.6">{title}</circle>'


def _speed(dot: Dot) -> str:
    return "rejected" if dot.speedup is None else times_text(dot.speedup, dot.basis, 3)


def group_class(group: str) -> str:
    """The class of the style sheet that colours a group."""
    return "g-" + "".join(c if c.isascii() and c.isalnum() else "-" for c in group)
