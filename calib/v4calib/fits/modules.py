"""Attention modules as sums of measured kernels.

What published tables time as one module (CSA without scan and top-k, HCA) is here the sum of the kernels that
were timed: projections, what stands between them (norms, RoPE, quantisation), compressors, the translation of
selected entries to slots, attention. Where a model has several kinds of layers of one family, a module is
their mean. A family of which a part was not measured stays as published: a sum that lacks one would be too
cheap. One value serves both engines: the kernels are ours.

Decode     csa = all parts + attention at no and at full selection; hca likewise at short context. Context
           adds to HCA as one sequence's latency, or the saturated rate of a batch (`hca`).
Prefill    csa = the same with the mean fill of the chunk; hca with its own grid over new x past, or, without
           HCA layers, the window alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from v4calib.curves import rising_grid, safe_beyond
from v4calib.draft import Draft
from v4calib.fits.bench import SPREAD, Bench, Curve
from v4calib.fits.hca import add_hca_context
from v4calib.fits.scan import grid_of
from v4calib.operations.layers import layer_kinds
from v4kernels.shapes import model

ENGINES = ("sglang", "vllm")
_TAIL_FROM = 131_072
_NOTE = "sum of kernels: projections, norms and RoPE, compressors, attention"


@dataclass(frozen=True, slots=True)
class Pieces:
    """All of a family of layers but attention, as weighted parts over tokens; attention over a window."""

    parts: tuple[tuple[float, Curve], ...]
    window: Curve

    def covers(self, tokens: float) -> bool:
        return all(c.covers(tokens) for c in (*(curve for _, curve in self.parts), self.window))

    def at(self, tokens: float) -> float:
        return sum(weight * curve.at(tokens) for weight, curve in self.parts)

    def tokens(self) -> list[float]:
        points = {p for c in (*(curve for _, curve in self.parts), self.window) for p in c.points}
        return sorted(p for p in points if self.covers(p))


def add_modules(draft: Draft, bench: Bench, name: str, source: str) -> None:
    """All module operations of a model, for each TP size that was measured."""
    top = model(name).index_topk
    empty = bench.curve("sparse_attention", name, "tokens", selected=0)
    full = _full_selection(bench, name)
    tps = sorted({m.point["tp"] for m in bench.rows("projections", name)})
    if empty is None or full is None or not tps:
        bench.skip(f"csa_decode.*.{name}", "projections and sparse attention were not both measured")
        return
    for tp in tps:
        for phase in ("decode", "prefill"):
            csa, csa_lacks = _pieces(bench, name, tp, "csa", phase, empty)
            hca, hca_lacks = _pieces(bench, name, tp, "hca", phase, empty)
            for engine in ENGINES:
                cut = f"{engine}.{name}.tp{tp}"
                if csa is None or hca is None:
                    bench.skip(f"csa_{phase}.{cut}", f"{csa_lacks or hca_lacks} was not measured")
                elif phase == "decode":
                    _add_decode(draft, cut, csa, hca, full, source)
                else:
                    _add_prefill(draft, bench, name, cut, csa, hca, full, top, source)
    _add_tail(draft, bench, name, source)
    if model(name).hca_ratio is not None:
        add_hca_context(draft, bench, name, empty, source)


def _full_selection(bench: Bench, name: str) -> Curve | None:
    """Attention over the full selection, tokens as axis, at the context that all token counts share."""
    top = model(name).index_topk
    rows = bench.rows("sparse_attention", name, held_out=False, selected=top)
    shared = min((m.point["context"] for m in rows), default=0)
    return bench.curve("sparse_attention", name, "tokens", selected=top, context=shared)


def _pieces(
    bench: Bench, name: str, tp: int, family: str, phase: str, empty: Curve
) -> tuple[Pieces | None, str]:
    """The parts of a family, or the operation that is missing."""
    kinds = [kind for kind in layer_kinds(name) if kind.family == family]
    layers = sum(kind.layers for kind in kinds)
    parts: list[tuple[float, Curve]] = []
    for kind in kinds:
        wanted: list[tuple[str, dict[str, int | str]]] = [
            ("projections", {"tp": tp, "layer": kind.name}),
            ("norm_rope", {"tp": tp, "layer": kind.name}),
        ]
        wanted += [("compressor", {"kind": c, "phase": phase}) for c in kind.compressors]
        if kind.selects:
            wanted.append(("translate", {}))
        for operation, fixed in wanted:
            curve = bench.curve(operation, name, "tokens", **fixed)
            if curve is None:
                return None, operation
            parts.append((kind.layers / layers, curve))
    return Pieces(tuple(parts), empty), ""


def _add_decode(draft: Draft, cut: str, csa: Pieces, hca: Pieces, full: Curve, source: str) -> None:
    tokens = [t for t in csa.tokens() if full.covers(t)]
    rows = [[csa.at(t) + csa.window.at(t), csa.at(t) + max(full.at(t), csa.window.at(t))] for t in tokens]
    draft.add_table(f"csa_decode.{cut}", {"tokens": tokens, "fill": (0, 1)}, rows, source, _NOTE, SPREAD)
    tokens = hca.tokens()
    values = [hca.at(t) + hca.window.at(t) for t in tokens]
    draft.add_table(
        f"hca_decode.{cut}", {"tokens": tokens}, values, source, f"{_NOTE}, short context", SPREAD
    )


def _add_prefill(
    draft: Draft,
    bench: Bench,
    name: str,
    cut: str,
    csa: Pieces,
    hca: Pieces,
    full: Curve,
    top: int,
    source: str,
) -> None:
    scans = grid_of(bench, "index_scan_prefill", name)
    if model(name).hca_ratio is None:
        found = None if scans is None else _window_grid(scans[0], scans[1], hca.window)
    else:
        found = grid_of(bench, "hca_prefill", name)
    if found is None or scans is None or (found[0], found[1]) != (scans[0], scans[1]):
        bench.skip(f"csa_prefill.{cut}", "scan and HCA chunks were not measured on one complete grid")
        return
    new, past, attention = found
    if not all(csa.covers(n) and hca.covers(n) and full.covers(n) for n in new):
        bench.skip(f"csa_prefill.{cut}", "chunks are larger than the token axis of projections")
        return
    axes, ratio = {"new_tokens": new, "past_tokens": past}, min(model(name).csa_ratios)
    rest = [
        [
            csa.at(n)
            + csa.window.at(n)
            + mean_fill(n, p, top, ratio) * max(full.at(n) - csa.window.at(n), 0.0)
            for p in past
        ]
        for n in new
    ]
    draft.add_table(f"csa_prefill.{cut}", axes, safe_beyond(rising_grid(rest)), source, _NOTE, SPREAD)
    share = [min((csa.at(n) + csa.window.at(n)) / row[0], 1.0) for n, row in zip(new, rest, strict=True)]
    draft.add_table(
        f"csa_prefill_share.{cut}", {"new_tokens": new}, share, source, "without selection", SPREAD, "share"
    )
    module = [[hca.at(n) + us for us in row] for n, row in zip(new, attention, strict=True)]
    operation = f"hca_prefill.{cut}"
    draft.add_table(operation, axes, module, source, _NOTE, SPREAD)
    for m in bench.rows("hca_prefill", name, held_out=True):
        n, p = m.point["new"], m.point["past"]
        if hca.covers(n):
            guess = draft.operations[operation].at(new_tokens=n, past_tokens=p)
            draft.compare(operation, guess, m.us + hca.at(n))


def _window_grid(
    new: list[int], past: list[int], window: Curve
) -> tuple[list[int], list[int], list[list[float]]] | None:
    """Attention of layers that see a window alone: the past costs nothing."""
    if not all(window.covers(n) for n in new):
        return None
    return new, past, [[window.at(n)] * len(past) for n in new]


def mean_fill(new: int, past: int, top: int, ratio: int = 4) -> float:
    """Mean share of the top-k that the tokens of a chunk fill."""
    return sum(min((past + i + 1) // ratio, top) for i in range(new)) / (new * top)


def _add_tail(draft: Draft, bench: Bench, name: str, source: str) -> None:
    top = model(name).index_topk
    rows = [
        m
        for m in bench.rows("sparse_attention", name, tokens=1, selected=top)
        if m.point["context"] >= _TAIL_FROM
    ]
    if len(rows) < 2:
        bench.skip(f"csa_tail.{name}", "attention was not measured at two contexts from 131,072 on")
        return
    low, high = min(rows, key=lambda m: m.point["context"]), max(rows, key=lambda m: m.point["context"])
    slope = max((high.us - low.us) / (high.point["context"] - low.point["context"]), 0.0)
    draft.add_fit(
        f"csa_tail.{name}",
        {"ctx_max": (low.point["context"], high.point["context"])},
        [("per_token", slope, ("ctx_max",))],
        "sum",
        source,
        "growth of attention over the selection as the history that it lies in grows",
        0.5,
    )
