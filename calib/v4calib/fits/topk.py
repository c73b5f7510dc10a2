"""Top-k: latency of one row over its context, the rate of many rows, and the prefill grid."""

from __future__ import annotations

from v4calib.draft import Draft
from v4calib.fits.bench import SPREAD, Bench, Curve
from v4calib.fits.legs import LegRow, two_terms
from v4calib.fits.scan import add_grid
from v4calib.grid import contexts_of
from v4calib.operations.index_scan import TABLE_RATIO, decode_ratio
from v4calib.rows import Measured
from v4kernels.shapes import model

_BEYOND_ONE = 1.3  # times the latency of one row: then the rate is what bounds


def add_topk(draft: Draft, bench: Bench, name: str, source: str) -> None:
    """`topk_decode`, `topk_rate` and `topk_prefill` of a model; contexts at the ratio of the tables."""
    start, scale = TABLE_RATIO * model(name).index_topk, TABLE_RATIO // decode_ratio(name)
    one = bench.curve("topk", name, "context", batch=1, width=1)
    if one is None:
        bench.skip(f"topk_decode.{name}", "fewer than two contexts of one sequence were measured")
    else:
        points = [0, start, start + TABLE_RATIO, *(scale * p for p in one.points)]
        values = [0.0, 0.0, one.values[0], *one.values]
        draft.add_table(
            f"topk_decode.{name}",
            {"ctx_max": points},
            values,
            source,
            "one row; below top-k entries nothing is selected",
            SPREAD,
        )
        for m in bench.rows("topk", name, held_out=True, batch=1, width=1):
            if one.covers(m.point["context"]):
                draft.compare(f"topk_decode.{name}", one.at(m.point["context"]), m.us)
        _add_rate(draft, bench, name, one, source)
    add_grid(draft, bench, "topk_prefill", f"topk_prefill.{name}", source, "untied scores", name)


def _add_rate(draft: Draft, bench: Bench, name: str, one: Curve, source: str) -> None:
    start, scale = TABLE_RATIO * model(name).index_topk, TABLE_RATIO // decode_ratio(name)
    chosen: list[tuple[Measured, LegRow]] = []
    for m in bench.rows("topk", name):
        contexts, width = contexts_of(m.point), m.point["width"]
        longest = max(contexts)
        if one.covers(longest) and m.us > _BEYOND_ONE * one.at(longest):
            tokens = width * len(contexts)
            chosen.append((m, LegRow(m.us, 0.0, float(tokens), float(scale * width * sum(contexts)))))
    for m in bench.rows("topk_prefill", name):
        new, past = m.point["new"], m.point["past"]
        if past >= start and new > 1:
            chosen.append((m, LegRow(m.us, 0.0, float(new), new * (past + new / 2))))
    fitted = [row for m, row in chosen if not m.point.held_out]
    if len(fitted) < 3:
        bench.skip(f"topk_rate.{name}", f"{len(fitted)} rows are bound by their number, 3 are needed")
        return
    token, pair = two_terms(fitted)
    draft.add_fit(
        f"topk_rate.{name}",
        {
            "tokens": (1, max(row.first for row in fitted)),
            "token_context": (1, max(row.second for row in fitted)),
        },
        [("per_token", token.slope, ("tokens",)), ("per_pair", pair.slope, ("token_context",))],
        "sum",
        source,
        f"many rows; token_context = sum over query tokens of their context; per_pair {pair.words}",
        0.25,
    )
    for m, row in chosen:
        if m.point.held_out:
            guess = token.slope * row.first + pair.slope * row.second
            draft.compare(f"topk_rate.{name}", guess, m.us)
