"""A nest is written several times: what one writing finds shapes the next (`Shape`), until nothing is found any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from accelopt_backends.cpp.emit import NestWriter
from accelopt_backends.cpp.lines import Shape
from accelopt_backends.cpp.nest_text import NestText
from accelopt_backends.loops.affine import Unsupported
from accelopt_backends.loops.nests import Nest
from accelopt_backends.loops.passes import mergeable
from accelopt_backends.loops.pull import NeedsSegments
from accelopt_backends.loops.values import Graph, Val


@dataclass(frozen=True)
class Choices:
    """Structural choices that reach a nest: which values a row buffer keeps, how outputs are stored, and whether
    what is computed with a row's results waits for all rows."""

    keep: str = "heavy"
    stores: str = "cached"
    loads: str = "tiled"
    nests: str = "together"


def write_nest(graph: Graph, nest: Nest, number: int, choices: Choices, done: Mapping[Val, str], exports: set[Val]) -> NestText:
    """One nest, written."""
    shape = Shape()

    def run() -> NestText:
        while True:
            text = NestText(NestWriter(graph, nest, number, shape, done), exports, stores=choices.stores)
            try:
                text.write()
                return text
            except NeedsSegments as cut:
                if shape.merges or not set(cut.cuts) - shape.cuts:
                    raise Unsupported("a concatenation inside a merged loop") from None
                shape.cuts |= set(cut.cuts)

    text = run()
    while (pair := mergeable(text.w)) is not None and not (shape.cuts and nest.vector in pair):
        shape.merges.append(pair)
        text = run()
    if text.w.across and choices.loads == "tiled" and text.tileable:
        shape.tile = max(text.w.across, key=lambda atom: text.w.across[atom])
        text = run()
    if choices.keep != "none":
        shape.buffered = {
            key
            for key, passes in text.w.seen.items()
            if len({number for number, _ in passes}) > 1
            and graph.vals[key[0]].lane == "f"
            and (text.w.heavy[key] or choices.keep == "all")
            and (choices.keep != "all" or graph.vals[key[0]].kind != "input" or graph.vals[key[0]].dtype != "f32")
        }
        while shape.buffered:
            text = run()
            if text.w.loaded == shape.buffered:
                break
            shape.buffered = set(text.w.loaded)
    return text
