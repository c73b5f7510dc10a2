"""What is measured: points, and the axes of a quick, a full and a CPU run.

The grids lie where no public table does (1-64 sequences x 8K-1M tokens, verify width 1-8, equal or mixed
lengths), plus single sequences and 8192-token chunks, which the published tables have: those rows say
how far our kernels and theirs agree. Every third inner point of an axis is held out: it is measured, never
fitted, and `v4calib check` judges the fit by it. Prefill axes end at exactly the published 8192 new and
1,000,000 past tokens, so that measured and published grids can stand side by side.

Leaves out what a point costs (see `plan`) and how it is run (see `operations`). Units: tokens unless a
name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from v4calib.errors import CalibError
from v4calib.timing import Budget

MIXES = ("equal", "mixed", "one")
SHORT_TOKENS = 8192  # the other sequences where one is long
Sizes = tuple[tuple[str, int | str], ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One shape of one operation. `sizes` are what its time is a function of."""

    operation: str
    model: str
    sizes: Sizes
    held_out: bool = False

    def __getitem__(self, name: str) -> int:
        return int(dict(self.sizes)[name])

    def word(self, name: str) -> str:
        return str(dict(self.sizes)[name])

    @property
    def key(self) -> str:
        """The same text for the same point, in any run."""
        return " ".join([self.operation, self.model, *(f"{k}={v}" for k, v in self.sizes)])

    def with_sizes(self, **changed: int | str) -> Point:
        sizes = tuple((k, changed.get(k, v)) for k, v in self.sizes)
        return Point(self.operation, self.model, sizes, self.held_out)

    def as_dict(self) -> dict[str, Any]:
        return {
            "operation": self.operation,
            "model": self.model,
            "sizes": dict(self.sizes),
            "held_out": self.held_out,
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Point:
        return cls(data["operation"], data["model"], tuple(data["sizes"].items()), bool(data["held_out"]))


@dataclass(frozen=True, slots=True)
class Grid:
    """Axes of one kind of run; an operation takes those it is a function of."""

    name: str
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    widths: tuple[int, ...]
    new: tuple[int, ...]
    past: tuple[int, ...]
    tokens: tuple[int, ...]
    tps: tuple[int, ...]
    link_bytes: tuple[int, ...]
    message_bytes: tuple[int, ...]
    max_batch_context: int
    point_s: float  # time limit of one timing
    ci_goal: float  # relative half-width of its confidence interval
    block: int = 5  # launches between two looks at it
    min_samples: int = 10

    @property
    def budget(self) -> Budget:
        return Budget(self.ci_goal, self.point_s, self.block, self.min_samples)


_QUICK = Grid(
    name="quick",
    batches=(1, 8, 32),
    contexts=(256, 8192, 65_536, 262_144, 1_048_576),
    widths=(1, 4),
    new=(1, 512, 2048, 8192),
    past=(0, 8192, 131_072, 1_000_000),
    tokens=(1, 8, 32, 128, 512, 2048, 8192),
    tps=(1,),
    link_bytes=(1 << 20, 1 << 24, 1 << 28),
    message_bytes=(1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 23, 1 << 26),
    max_batch_context=32 << 20,
    point_s=0.25,
    ci_goal=0.02,
)
_FULL = Grid(
    name="full",
    batches=(1, 2, 4, 8, 16, 32, 64),
    contexts=(256, 8192, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288, 1_048_576),
    widths=(1, 2, 3, 4, 6, 8),
    new=(1, 16, 128, 512, 1024, 2048, 4096, 8192),
    past=(0, 2048, 8192, 32_768, 131_072, 262_144, 524_288, 1_000_000),
    tokens=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
    tps=(1, 2, 4, 8),
    link_bytes=(1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30),
    message_bytes=tuple(1 << n for n in range(12, 30)),
    max_batch_context=64 << 20,
    point_s=0.5,
    ci_goal=0.01,
)
_CPU = Grid(
    name="cpu",
    batches=(1, 2, 3),
    contexts=(256, 4096, 8192),
    widths=(1, 2),
    new=(1, 8, 16),
    past=(0, 1024, 4096),
    tokens=(1, 2, 4, 16),
    tps=(1, 4),
    link_bytes=(1 << 20, 1 << 22, 1 << 24),
    message_bytes=(1 << 12, 1 << 16, 1 << 18, 1 << 20),
    max_batch_context=16_384,
    point_s=0.1,
    ci_goal=0.2,
    block=1,
    min_samples=3,
)
GRIDS = {grid.name: grid for grid in (_QUICK, _FULL, _CPU)}


def grid(name: str) -> Grid:
    """The axes of that name."""
    try:
        return GRIDS[name]
    except KeyError:
        raise CalibError(f"There is no grid {name!r}: choose one of {', '.join(GRIDS)}.") from None


def contexts_of(point: Point) -> list[int]:
    """The lengths of a decode point's sequences.

    equal: all of `context`; mixed: the same sum, from a quarter to seven quarters of it; one: one of
    `context` among short ones.
    """
    batch, context, mix = point["batch"], point["context"], point.word("mix")
    if mix == "equal" or batch == 1:
        return [context] * batch
    if mix == "one":
        return [context] + [min(SHORT_TOKENS, context)] * (batch - 1)
    if mix == "mixed":
        lengths = [int(context * (0.25 + 1.5 * i / (batch - 1))) for i in range(batch)]
        lengths[-1] += context * batch - sum(lengths)
        return lengths
    raise CalibError(f"mix = {mix!r} is not a kind of batch: choose one of {', '.join(MIXES)}.")


def decode_points(operation: str, model: str, axes: Grid) -> list[Point]:
    """batch x context x width with equal lengths; the largest batches also mixed and with one long one."""
    points = []
    longest = axes.contexts[-1]
    for batch in axes.batches:
        for context in axes.contexts:
            for width in axes.widths:
                if batch * context > axes.max_batch_context:
                    continue
                held = inner(axes.batches, batch) and inner(axes.contexts, context)
                sizes: Sizes = (("batch", batch), ("context", context), ("width", width), ("mix", "equal"))
                points.append(Point(operation, model, sizes, held))
    for batch in axes.batches[1:]:
        context = max(
            (c for c in axes.contexts if batch * c <= axes.max_batch_context), default=axes.contexts[0]
        )
        for mix, length in (("mixed", context // 2), ("one", longest)):
            sizes = (("batch", batch), ("context", length), ("width", axes.widths[0]), ("mix", mix))
            points.append(Point(operation, model, sizes, held_out=True))
    return points


def chunk_points(operation: str, model: str, axes: Grid) -> list[Point]:
    """new x past; tables need every node, so held-out chunks lie between them."""
    points = [
        Point(operation, model, (("new", new), ("past", past))) for new in axes.new for past in axes.past
    ]
    new = (axes.new[-2] + axes.new[-1]) // 2
    for low, high in zip(axes.past[1:-1], axes.past[2:], strict=True):
        points.append(Point(operation, model, (("new", new), ("past", (low + high) // 2)), True))
    return points


def token_points(operation: str, model: str, axes: Grid, **fixed: int) -> list[Point]:
    """One axis of tokens; every third inner node is held out."""
    return [
        Point(operation, model, (("tokens", t), *fixed.items()), inner(axes.tokens, t)) for t in axes.tokens
    ]


def entries_seen(new: int, past: int, ratio: int) -> int:
    """Entries of `ratio` tokens that the tokens of a chunk see, summed over them."""

    def below(n: int) -> int:  # sum of t // ratio over t <= n
        full, rest = divmod(n + 1, ratio)
        return ratio * full * (full - 1) // 2 + full * rest

    return below(past + new) - below(past)


def inner(axis: tuple[int, ...], value: int) -> bool:
    """Every third inner point of an axis, which is held out."""
    i = axis.index(value)
    return i % 3 == 2 and i < len(axis) - 1
