"""Attention modules as sums of measured kernels: projections, compressors, attention.

What published tables time as one module (CSA without scan and top-k, HCA) is here the sum of the kernels that
were timed. Norms, RoPE and the quantisation of queries are not among them, so a sum is a little less than
an engine's module; `v4calib merge --except csa_decode,...` keeps the published ones. One value serves both
engines: the kernels are ours.

Decode     csa = projections + compressors + attention at no and at full selection; hca likewise at short
           context. Context adds to HCA as one sequence's latency, or the saturated rate of a batch.
Prefill    csa = the same with the mean fill of the chunk; hca with its own grid over new x past.
"""

from __future__ import annotations

from dataclasses import dataclass

from v4calib.curves import rising_grid, safe_beyond
from v4calib.draft import Draft
from v4calib.fits.bench import SPREAD, Bench, Curve
from v4calib.fits.legs import LegRow, two_legs
from v4calib.fits.scan import grid_of
from v4calib.grid import contexts_of
from v4calib.operations.attention import ENTRY_BYTES, HCA_RATIO
from v4calib.roofline import peaks
from v4calib.rows import Measured
from v4kernels.shapes import HEAD_DIM, model

ENGINES = ("sglang", "vllm")
_RATIO = 4
_BEYOND_ONE = 1.3
_TAIL_FROM = 131_072
_NOTE = "sum of kernels: projections, compressors, attention"


@dataclass(frozen=True, slots=True)
class Pieces:
    """Everything of one layer kind over tokens, without attention; and attention at no selection."""

    layers: tuple[Curve, ...]
    window: Curve

    def covers(self, tokens: float) -> bool:
        return all(c.covers(tokens) for c in (*self.layers, self.window))

    def at(self, tokens: float) -> float:
        return sum(c.at(tokens) for c in self.layers)

    def tokens(self) -> list[float]:
        points = {p for c in (*self.layers, self.window) for p in c.points}
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
            csa = _pieces(bench, name, tp, "csa", phase, empty)
            hca = _pieces(bench, name, tp, "hca", phase, empty)
            for engine in ENGINES:
                cut = f"{engine}.{name}.tp{tp}"
                if csa is None or hca is None:
                    bench.skip(f"csa_{phase}.{cut}", "a compressor or a projection is missing")
                elif phase == "decode":
                    _add_decode(draft, cut, csa, hca, full, source)
                else:
                    _add_prefill(draft, bench, name, cut, csa, hca, full, top, source)
    _add_tail(draft, bench, name, source)
    _add_hca_context(draft, bench, name, empty, source)


def _full_selection(bench: Bench, name: str) -> Curve | None:
    """Attention over the full selection, tokens as axis, at the context that all token counts share."""
    top = model(name).index_topk
    rows = bench.rows("sparse_attention", name, held_out=False, selected=top)
    shared = min((m.point["context"] for m in rows), default=0)
    return bench.curve("sparse_attention", name, "tokens", selected=top, context=shared)


def _pieces(bench: Bench, name: str, tp: int, layer: str, phase: str, empty: Curve) -> Pieces | None:
    curves = [bench.curve("projections", name, "tokens", tp=tp, layer=layer)]
    for kind in ("c4", "index") if layer == "csa" else ("c128",):
        curves.append(bench.curve("compressor", name, "tokens", kind=kind, phase=phase))
    found = [c for c in curves if c is not None]
    return Pieces(tuple(found), empty) if len(found) == len(curves) else None


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
    found = grid_of(bench, "hca_prefill", name)
    scans = grid_of(bench, "index_scan_prefill", name)
    if found is None or scans is None or (found[0], found[1]) != (scans[0], scans[1]):
        bench.skip(f"csa_prefill.{cut}", "scan and HCA chunks were not measured on one complete grid")
        return
    new, past, attention = found
    if not all(csa.covers(n) and hca.covers(n) and full.covers(n) for n in new):
        bench.skip(f"csa_prefill.{cut}", "chunks are larger than the token axis of projections")
        return
    axes = {"new_tokens": new, "past_tokens": past}
    rest = [
        [
            csa.at(n) + csa.window.at(n) + mean_fill(n, p, top) * max(full.at(n) - csa.window.at(n), 0.0)
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


def mean_fill(new: int, past: int, top: int) -> float:
    """Mean share of the top-k that the tokens of a chunk fill."""
    return sum(min((past + i + 1) // _RATIO, top) for i in range(new)) / (new * top)


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


def _add_hca_context(draft: Draft, bench: Bench, name: str, empty: Curve, source: str) -> None:
    one = bench.curve("hca_attention", name, "context", batch=1, width=1)
    if one is None:
        bench.skip(f"hca_context.{name}", "fewer than two contexts of one sequence were measured")
        return
    above = [max(v - one.values[0], 0.0) for v in one.values]
    points = one.points if one.points[0] == 0 else [0, *one.points]
    values = above if one.points[0] == 0 else [0.0, *above]
    context = Curve(points, values)
    draft.add_table(
        f"hca_context.{name}",
        {"ctx_max": points},
        context.values,
        source,
        "one sequence, added to hca_decode",
        SPREAD,
    )
    for m in bench.rows("hca_attention", name, held_out=True, batch=1, width=1):
        if context.covers(m.point["context"]):
            draft.compare(f"hca_context.{name}", one.values[0] + context.at(m.point["context"]), m.us)
    _add_saturated(draft, bench, name, context, empty, source)


def _add_saturated(draft: Draft, bench: Bench, name: str, context: Curve, empty: Curve, source: str) -> None:
    def row(m: Measured) -> tuple[LegRow, float]:
        contexts, width = contexts_of(m.point), m.point["width"]
        base = empty.at(width * len(contexts))
        total = float(sum(contexts))
        return LegRow(m.us, base, width * total, total), base + context.at(max(contexts))

    usable = [
        m
        for m in bench.rows("hca_attention", name)
        if empty.covers(m.point["batch"] * m.point["width"]) and context.covers(max(contexts_of(m.point)))
    ]
    fitted = []
    for m in usable:
        legs, latency = row(m)
        if not m.point.held_out and m.us > _BEYOND_ONE * latency:
            fitted.append(legs)
    if len(fitted) < 3:
        bench.skip(f"hca_saturated.{name}", f"{len(fitted)} batches are bound by their work, 3 are needed")
        return
    rates = peaks(bench.facts)
    compute = hbm = 0.0
    if rates is not None:
        compute = 4 * model(name).heads * HEAD_DIM / HCA_RATIO / rates.bf16_flops
        hbm = ENTRY_BYTES / HCA_RATIO / rates.hbm_bytes
    found = two_legs(fitted, (compute, hbm))
    operation = f"hca_saturated.{name}"
    draft.add_fit(
        operation,
        {
            "context": (1, max(r.second for r in fitted)),
            "token_context": (1, max(r.first for r in fitted)),
        },
        [
            ("compute", found.first.slope, ("token_context",)),
            ("hbm", found.second.slope, ("context",)),
        ],
        "max",
        source,
        f"batches bound by their work; compute {found.first.words}; hbm {found.second.words}",
        max(found.error(fitted), SPREAD),
    )
    for m in usable:
        legs, latency = row(m)
        if m.point.held_out and m.point["batch"] > 1:
            draft.compare(operation, max(latency, found.at(legs)), m.us)
