"""HCA over context: one sequence by its length, a batch by its work."""

from __future__ import annotations

from v4calib.draft import Draft
from v4calib.fits.bench import SPREAD, Bench, Curve
from v4calib.fits.legs import LegRow, two_legs
from v4calib.grid import contexts_of
from v4calib.operations.attention import HCA_RATIO
from v4calib.roofline import peaks
from v4calib.rows import Measured
from v4kernels.shapes import HEAD_DIM, model

_ENTRY_BYTES = 584
_BEYOND_ONE = 1.3  # times the latency of one sequence: then its work is what bounds a batch


def add_hca_context(draft: Draft, bench: Bench, name: str, empty: Curve, source: str) -> None:
    """`hca_context` and `hca_saturated` of a model."""
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
        hbm = _ENTRY_BYTES / HCA_RATIO / rates.hbm_bytes
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
