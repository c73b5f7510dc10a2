"""The drawing surface of every figure: matplotlib without pyplot, laid out in pixels, in the house style.

Figures are drawn at the size they are read at (460 px wide: one column on a telephone, two on a desk), with
few artists, and leave as inline SVG. Colours are tokens (`C.ink`, `C.s1`) that the page's CSS resolves.
Nothing depends on the user's matplotlibrc: `house_style` starts from matplotlib's own defaults.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from v4reports.figures.svg import HEX_OF, inline

WIDTH = 460
FONT_PX = 12.0
SMALL_PX = 11.0
C = SimpleNamespace(**HEX_OF)


@contextmanager
def house_style() -> Iterator[None]:
    """matplotlib's own defaults and ours, for as long as the page is drawn."""
    import matplotlib

    settings: Any  # matplotlib types its keys as literals
    keep = ("backend", "backend_fallback", "interactive", "toolbar", "timezone", "webagg.port")
    defaults = {key: value for key, value in matplotlib.rcParamsDefault.items() if key not in keep}
    settings = defaults | {
        "svg.fonttype": "none",  # text stays text: small, searchable, in the page's typeface
        "font.size": FONT_PX,
        "text.parse_math": False,  # a `$` in a name is a dollar
        "text.color": C.ink,
        "axes.axisbelow": True,
    }
    with warnings.catch_warnings(), matplotlib.rc_context(settings):
        # Glyphs are drawn by the reader's fonts, not by the one matplotlib measures with.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


class Canvas:
    """One drawing of `width` × `height` px. Positions are px from the top left corner."""

    def __init__(self, height: float, width: float = WIDTH) -> None:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        self.width, self.height = width, height
        self.figure = Figure(figsize=(width / 72, height / 72), frameon=False)
        FigureCanvasSVG(self.figure)

    def axes(self, left: float, top: float, right: float, bottom: float) -> Any:
        """Bare axes inside these margins: no frame, no ticks."""
        width, height = self.width - left - right, self.height - top - bottom
        box = (left / self.width, bottom / self.height, width / self.width, height / self.height)
        axes = self.figure.add_axes(box, frameon=False)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.margins(0)
        return axes

    def svg(self, *, slug: str, title: str, description: str, css_class: str = "") -> str:
        import matplotlib

        out = io.StringIO()
        # The salt makes the ids inside repeatable and different from those of the other figures.
        with matplotlib.rc_context({"svg.hashsalt": slug}):
            self.figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        return inline(out.getvalue(), slug=slug, title=title, description=description, css_class=css_class)


def grid_x(axes: Any, ticks: Sequence[float], labels: Sequence[str]) -> None:
    """Thin vertical lines with muted labels below."""
    axes.set_xticks(list(ticks), list(labels))
    axes.tick_params(axis="x", length=0, labelsize=SMALL_PX, labelcolor=C.muted, pad=8)
    axes.grid(axis="x", color=C.rule, linewidth=1)


def grid_y(axes: Any, ticks: Sequence[float], labels: Sequence[str]) -> None:
    """Thin horizontal lines with muted labels at the left."""
    axes.set_yticks(list(ticks), list(labels))
    axes.tick_params(axis="y", length=0, labelsize=SMALL_PX, labelcolor=C.muted, pad=4)
    axes.grid(axis="y", color=C.rule, linewidth=1)


def shortened(text: str, width_px: float, font_px: float = FONT_PX) -> str:
    """`text` cut with an ellipsis to what fits; the figure's description has it whole."""
    most = max(int(width_px / (0.58 * font_px)), 2)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def nice_ticks(top: float, at_most: int = 5) -> list[float]:
    """Round steps from zero that cover `top`: 1, 2 or 5 times a power of ten."""
    if not top > 0:
        return [0.0, 1.0]
    raw = top / at_most
    scale = 10 ** math.floor(math.log10(raw))
    step = next(m * scale for m in (1, 2, 5, 10) if m * scale >= raw * (1 - 1e-9))
    return [step * i for i in range(math.ceil(top / step - 1e-9) + 1)]


LOG_MULTIPLES = ((1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))


def log_ticks(low: float, high: float, width_px: float = 250.0, gap_px: float = 52.0) -> list[float]:
    """Round numbers on a logarithmic axis: the finest set whose labels keep `gap_px` apart."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    per_px = math.log10(high / low) / width_px
    best: list[float] = []
    for multiples in LOG_MULTIPLES:
        found = [multiple * 10.0**exponent for exponent in exponents for multiple in multiples]
        ticks = [tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if best and len(ticks) < 2:
            break  # crowded labels read better than one alone
        best = ticks
        if all(math.log10(b / a) >= gap_px * per_px for a, b in pairwise(ticks)):
            break
    return best


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels apart to at least `gap`, in their order, inside [low, high] where they fit."""
    order = sorted(range(len(positions)), key=lambda i: (positions[i], i))
    placed: list[float] = []
    for i in order:
        placed.append(max(positions[i], placed[-1] + gap if placed else low))
    if placed and placed[-1] > high:
        placed[-1] = high
        for k in range(len(placed) - 2, -1, -1):
            placed[k] = min(placed[k], placed[k + 1] - gap)
    out = [0.0] * len(positions)
    for place, i in zip(placed, order, strict=True):
        out[i] = place
    return out
