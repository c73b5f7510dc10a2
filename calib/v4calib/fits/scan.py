"""Index scan: floor over query tokens, legs over keys and (query, key) pairs, and the prefill grid.

The floor is a scan of a context so short that only the launch is left. Above it a decode batch takes the
larger of HBM (bytes of a key; the rows are L2-cold) and arithmetic. Of the arithmetic legs rows show only
the larger, which is `matrix`; `head_sum` is the FP32 roofline and lies below it.
"""

from __future__ import annotations

from v4calib.curves import rising_grid, safe_beyond
from v4calib.draft import Draft
from v4calib.fits.bench import SPREAD, Bench, Curve
from v4calib.fits.legs import LegRow, TwoLegs, two_legs
from v4calib.grid import contexts_of
from v4calib.operations.index_scan import KEY_BYTES, decode_ratio, key_formats
from v4calib.roofline import peaks
from v4calib.rows import Measured
from v4kernels.shapes import INDEX_DIM, model


def add_scan(draft: Draft, bench: Bench, name: str, source: str) -> None:
    """`index_scan_floor` and `index_scan.<model>.<dtype>`."""
    floors: dict[str, Curve] = {}
    for dtype in key_formats(name):
        rows = bench.rows("index_scan", name, dtype=dtype)
        floor = _floor(rows)
        if floor is None:
            bench.skip(f"index_scan.{name}.{dtype}", "no rows at two token counts and a short context")
            continue
        floors[dtype] = floor
        longest = max(m.point["context"] for m in rows)
        above = [m for m in rows if m.point["context"] > _shortest(rows)]
        fitted = [_leg_row(m, floor) for m in above if not m.point.held_out and _covers(floor, m)]
        if len(fitted) < 3:
            bench.skip(f"index_scan.{name}.{dtype}", f"{len(fitted)} rows beyond the floor, 3 are needed")
            continue
        hbm, matrix, head_sum = _rooflines(bench, name, dtype)
        legs = two_legs(fitted, (hbm, matrix))
        entries = max(_entries(m) for m in above)
        operation = f"index_scan.{name}.{dtype}"
        draft.add_fit(
            operation,
            {"entries": (1, entries), "pairs": (1, max(_entries(m) * m.point["width"] for m in above))},
            [
                ("hbm", legs.first.slope, ("entries",)),
                ("matrix", legs.second.slope, ("pairs",)),
                ("head_sum", min(head_sum, legs.second.slope), ("pairs",)),
            ],
            "max",
            source,
            f"above the floor; hbm {legs.first.words}; matrix {legs.second.words}; contexts to {longest:,}",
            max(legs.error(fitted), SPREAD),
        )
        for m in above:
            if m.point.held_out and _covers(floor, m):
                draft.compare(operation, legs.at(_leg_row(m, floor)), m.us)
        if dtype == "fp4":
            _compare_candidates(draft, bench, name, operation, legs, floor)
    floor = floors.get("fp8") or floors.get("fp4")
    if floor is not None and "index_scan_floor" not in draft.operations:
        draft.add_table(
            "index_scan_floor", {"tokens": floor.points}, floor.values, source, "shortest context", SPREAD
        )


def _compare_candidates(
    draft: Draft, bench: Bench, name: str, operation: str, legs: TwoLegs, floor: Curve
) -> None:
    """V4.1's scans inside a pool are priced by the legs of the dense one: how far off is that?"""
    for m in bench.rows("candidate_scan", name):
        tokens = m.point["tokens"]
        if floor.covers(tokens):
            pairs = float(tokens * model(name).candidate_entries)
            draft.compare(operation, legs.at(LegRow(m.us, floor.at(tokens), pairs, pairs)), m.us)


def add_grid(
    draft: Draft, bench: Bench, operation: str, profile_name: str, source: str, note: str, model_name: str
) -> bool:
    """A prefill table over new x past, if a complete grid was measured."""
    found = grid_of(bench, operation, model_name)
    if found is None:
        bench.skip(profile_name, "no complete grid of new x past tokens was measured")
        return False
    new, past, values = found
    draft.add_table(profile_name, {"new_tokens": new, "past_tokens": past}, values, source, note, SPREAD)
    for m in bench.rows(operation, model_name, held_out=True):
        draft.compare(
            profile_name,
            draft.operations[profile_name].at(new_tokens=m.point["new"], past_tokens=m.point["past"]),
            m.us,
        )
    return True


def grid_of(bench: Bench, operation: str, name: str) -> tuple[list[int], list[int], list[list[float]]] | None:
    """The largest complete grid: sizes that lack cells are dropped, most lacking first."""
    cells = {(m.point["new"], m.point["past"]): m.us for m in bench.rows(operation, name, held_out=False)}
    new, past = sorted({n for n, _ in cells}), sorted({p for _, p in cells})
    while new and past:
        lacking = {("new", n): sum((n, p) not in cells for p in past) / len(past) for n in new}
        lacking |= {("past", p): sum((n, p) not in cells for n in new) / len(new) for p in past}
        axis, value = max(lacking, key=lambda k: (lacking[k], k))
        if not lacking[axis, value]:
            break
        (new if axis == "new" else past).remove(value)
    if len(new) < 2 or len(past) < 2:
        return None
    return new, past, safe_beyond(rising_grid([[cells[n, p] for p in past] for n in new]))


def _shortest(rows: list[Measured]) -> int:
    return min(m.point["context"] for m in rows)


def _floor(rows: list[Measured]) -> Curve | None:
    found: dict[int, list[float]] = {}
    for m in rows:
        if m.point["context"] == _shortest(rows) and m.point.word("mix") == "equal":
            found.setdefault(m.point["batch"] * m.point["width"], []).append(m.us)
    if len(found) < 2:
        return None
    points = sorted(found)
    return Curve(points, [sum(found[p]) / len(found[p]) for p in points])


def _covers(floor: Curve, m: Measured) -> bool:
    return floor.covers(m.point["batch"] * m.point["width"])


def _entries(m: Measured) -> int:
    return sum(c // decode_ratio(m.point.model) for c in contexts_of(m.point))


def _leg_row(m: Measured, floor: Curve) -> LegRow:
    entries, width = _entries(m), m.point["width"]
    return LegRow(m.us, floor.at(m.point["batch"] * width), float(entries), float(entries * width))


def _rooflines(bench: Bench, name: str, dtype: str) -> tuple[float, float, float]:
    """Microseconds an entry and a pair at the data sheet's rates; zero on a CPU."""
    rates = peaks(bench.facts)
    if rates is None:
        return 0.0, 0.0, 0.0
    heads = model(name).index_heads
    return (
        KEY_BYTES[dtype] / rates.hbm_bytes,
        2 * heads * INDEX_DIM / rates.matrix(dtype),
        2 * heads / rates.fp32_ops,
    )
