"""How a nest writes its outputs: which element goes where, and by which of the caches' ways."""

from __future__ import annotations

from accelopt_backends.cpp.emit import NestWriter
from accelopt_backends.cpp.expressions import STORED
from accelopt_backends.cpp.lines import Ex
from accelopt_backends.loops.affine import ONE, Affine, mono
from accelopt_backends.loops.nests import Store
from accelopt_backends.loops.order import place_of
from accelopt_backends.loops.pull import canonical
from accelopt_compile.records import ITEM_BYTES


class Stores:
    """The stores of one nest, through its writer. `how` is "cached", or "streamed" past the caches."""

    def __init__(self, writer: NestWriter, how: str) -> None:
        self.w, self.how = writer, how

    def form(self, store: Store) -> Affine:
        """Where in the output the value's elements go."""
        return place_of(self.w.graph, store)

    def read_first(self, stores: list[Store]) -> None:
        """Where outputs lie over inputs, name every value before the first store: its inputs are read by then."""
        if self.w.graph.workload.aliases:
            for store in stores:
                self.w.value(store.val, canonical(store.val.dims, self.w.graph.sizes))

    def vector(self, store: Store, *, ahead: bool) -> None:
        """A vector of the output. `ahead`: memory is asked for the lines that are written next."""
        w = self.w
        spec = w.graph.workload.output_specs[store.output]
        plain = self.how == "cached" and not w.graph.workload.aliases
        source = w.plain_copy(store.val, spec.dtype) if plain else None
        x = Ex("", "", "body") if source else w.value(store.val, canonical(store.val.dims, w.graph.sizes))
        form = w.access(self.form(store))
        m = form.coefficient(w.vector or "")
        pointer = w.pointer(f"out{store.output}", STORED[spec.dtype], form.without(w.vector or ""), "")
        name = x.name if x.varying else f"all({x.name})"
        if source and not m.is_one:
            name = w.value(store.val, canonical(store.val.dims, w.graph.sizes)).name
        if m.is_one and source:
            w.say("body", f"copy(b, {pointer} + k, {source}, left);")
        elif m.is_one:
            if self.how == "streamed":
                w.say("body", f"stream(b, {pointer} + k, {name}, left, {self.past(store)});")
            else:
                w.say("body", f"store(b, {pointer} + k, {name}, left);")
        else:
            w.say("body", f"scatter(b, {pointer} + {m.c()}*k, {m.c()}, {name}, left);")
        if m.is_one and ahead and not (w.shape.tile or w.graph.workload.aliases):
            self.ask_to_write(store, pointer, " + AHEAD")

    def one(self, store: Store) -> None:
        """The output's one element of this row."""
        w = self.w
        x = w.value(store.val, canonical(store.val.dims, w.graph.sizes))
        form = w.access(self.form(store))
        w.say("row", f"put_one(out{store.output} + {form.c()}, {x.name});")

    def ask_to_write(self, store: Store, pointer: str, distance: str = "") -> None:
        cached = f"if (!({self.past(store)})) " if self.how == "streamed" else ""
        self.w.say("body", f"{cached}ahead<1>(b, {pointer} + k{distance}, u);")

    def past(self, store: Store) -> str:
        """Whether a streamed output is too large to be read from the caches, as C++."""
        spec = self.w.graph.workload.output_specs[store.output]
        size = ONE
        for s in spec.shape:
            size = size * mono(s)
        return f"{size.c()} * {ITEM_BYTES[spec.dtype]} > STREAM_BYTES"
