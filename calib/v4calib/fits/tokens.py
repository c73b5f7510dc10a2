"""Operations that are one curve over tokens: dense matrices, experts, mHC; and links over bytes.

The cost of an eager launch is measured and reported, but stays out of the profile: what an engine pays an
operation outside a graph is its own Python, not the launch of one kernel.
"""

from __future__ import annotations

import itertools

from v4calib.draft import Draft
from v4calib.fits.bench import SPREAD, Bench, add_curve, compare_curve
from v4calib.fits.legs import LegRow, two_terms
from v4calib.fits.modules import ENGINES
from v4calib.operations.links import moved_bytes

_FORM = {"fp8": tuple(f"mxfp4.{engine}" for engine in ENGINES), "bf16": ("marlin.all",)}
_WAYS = {
    "copy": "h2d_copy",
    "layers": "h2d_layers",
    "pages": "h2d_pages",
    "gather": "h2d_gather",
    "back": "d2h_copy",
    "spill": "d2h_pages",
}


def add_tokens(draft: Draft, bench: Bench, name: str, source: str) -> None:
    """Shared expert, LM head, draft projection, mHC and routed experts of a model."""
    for operation, note in (
        ("shared_expert", "gate and up, then down"),
        ("lm_head", "BF16, vocabulary cut over TP, no collective"),
    ):
        for tp in sorted({m.point["tp"] for m in bench.rows(operation, name)}):
            _add(draft, bench, name, operation, f"{operation}.{name}.tp{tp}", source, note, tp=tp)
    if bench.rows("mtp_projection", name):
        _add(
            draft,
            bench,
            name,
            "mtp_projection",
            f"mtp_projection.{name}",
            source,
            "embedding and hidden to h",
        )
    curve = bench.curve("mhc", name, "tokens")
    if curve is not None:
        for engine in ENGINES:
            profile_name = f"mhc.{engine}.{name}"
            add_curve(draft, profile_name, "tokens", curve, source, "both calls of a layer", times=2.0)
            compare_curve(draft, bench, profile_name, curve, "tokens", "mhc", name)
    cuts = sorted(
        {(m.point["tp"], m.point["ep"], m.point.word("activation")) for m in bench.rows("experts", name)}
    )
    for tp, ep, activation in cuts:
        for form in _FORM[activation]:
            _add(
                draft, bench, name, "experts", f"moe.{form}.{name}.tp{tp}ep{ep}", source,
                "tokens of the whole group, busiest rank, power law 1.2", tp=tp, ep=ep, activation=activation,
            )  # fmt: skip


def _add(
    draft: Draft,
    bench: Bench,
    name: str,
    operation: str,
    profile_name: str,
    source: str,
    note: str,
    **fixed: int | str,
) -> None:
    curve = bench.curve(operation, name, "tokens", **fixed)
    if curve is None:
        bench.skip(profile_name, "fewer than two token counts were measured")
        return
    add_curve(draft, profile_name, "tokens", curve, source, note)
    compare_curve(draft, bench, profile_name, curve, "tokens", operation, name, **fixed)


def add_links(draft: Draft, bench: Bench, source: str) -> None:
    """Host link, alone and beside compute, and memory bandwidth."""
    for (way, alone), beside in itertools.product(_WAYS.items(), ("nothing", "compute")):
        profile_name = alone if beside == "nothing" else f"{alone}_beside_compute"
        rows = bench.rows("host_link", "any", way=way, beside=beside)
        fitted = [LegRow(m.us, 0.0, 1.0, float(moved_bytes(m.point))) for m in rows if not m.point.held_out]
        if rows and len(fitted) < 2:
            bench.skip(profile_name, "fewer than two sizes were measured")
        if len(fitted) < 2:
            continue
        latency, per_byte = two_terms(fitted)
        sizes = [r.second for r in fitted]
        draft.add_fit(
            profile_name,
            {"bytes": (min(sizes), max(sizes))},
            [("latency", latency.slope, ()), ("per_byte", per_byte.slope, ("bytes",))],
            "sum",
            source,
            f"pinned host memory, {beside} beside it; per_byte {per_byte.words}",
            SPREAD,
        )
        for m in rows:
            if m.point.held_out:
                draft.compare(profile_name, latency.slope + per_byte.slope * moved_bytes(m.point), m.us)
    copies = bench.rows("copy", "any")
    if copies:
        best = max(copies, key=lambda m: m.point["bytes"])
        size = 2.0 * best.point["bytes"]
        draft.add_fit(
            "hbm_stream",
            {"bytes": (size / 8, size)},
            [("per_byte", best.us / size, ("bytes",))],
            "sum",
            source,
            "copy, bytes read and written",
            SPREAD,
        )
