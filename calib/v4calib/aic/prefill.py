"""CSA and HCA prefill modules over (new tokens, past tokens), CSA split into scan, top-k and the rest.

SGLang's context rows ran top-k on tied scores too: with the flat calibration time subtracted, the rest of
a row stays constant to half a percent between a past of 2K and 32K for every chunk size, with the
realistic one it grows by up to 20 % (trap 2, seen again in prefill). So a row is

    module = rest(new, past up to saturation) + scan(new, past) + flat top-k,

rest is read off where the selection has just become full, and the scan is what remains of longer rows
(the stand-alone scan kernel is slower at long past than the same scan inside the module). Serving gets the
realistic top-k instead of the flat one. Scan and top-k do not depend on TP: the indexer is replicated.

A chunk's rest contains attention to the chunk's own entries. What many short chunks in one step share is
the rest of batched prompts of at most 128 tokens, which have next to none: the base over all new tokens.

vLLM's tables stop at 65,536 tokens and have no top-k calibration; their CSA rows show tied scores wherever
selection happens, so only rows without selection are used: rest at past 0, its growth and the scan from
SGLang's, which share kernels (FlashMLA, DeepGEMM). HCA growth with past is scaled to vLLM's longest row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from v4calib.aic.decode import Rows, module_rows, module_source
from v4calib.aic.draft import Draft
from v4calib.aic.indexer import model_label, topk_table
from v4calib.aic.shapes import SGLANG, SHAPES, TPS, Shape
from v4calib.curves import interpolate, rising, rising_grid

NEW = (1, 16, 64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 10_240, 12_288, 16_384)
_SHORT = 128
PAST = (0, 1024, 2048, 4096, 6144, 8192, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288, 1_000_000)


@dataclass(frozen=True, slots=True)
class Cells:
    """A monotone grid over (new, past)."""

    new: tuple[int, ...]
    values: dict[tuple[int, int], float]

    def __getitem__(self, key: tuple[int, int]) -> float:
        return self.values[key]

    def at(self, n: float, p: float) -> float:
        column = [interpolate(PAST, [self.values[m, q] for q in PAST], p) for m in self.new]
        return interpolate(self.new, column, n)


def _monotone(new: tuple[int, ...], values: Mapping[tuple[int, int], float]) -> Cells:
    rows = rising_grid([[values[n, p] for p in PAST] for n in new])
    return Cells(new, {(n, p): rows[i][j] for i, n in enumerate(new) for j, p in enumerate(PAST)})


def add_prefill(draft: Draft) -> None:
    scan_table = draft.table("sparse_attention", "sglang", SGLANG, "dsv4_paged_mqa_logits_module_perf")
    kernel: Rows = scan_table.where(batch_size=1).pairs("isl", "step")
    for shape in SHAPES:
        table = topk_table(draft, shape).where(batch_size=1)
        flat: Rows = table.where(score_mode="v1_flat").pairs("isl", "step")
        real: Rows = table.where(score_mode="v1_top_last").pairs("isl", "step")
        csa = {tp: module_rows(draft, "sglang", "csa", "context", shape, tp) for tp in TPS}
        new = tuple(n for n in NEW if all((n, p) in rows for rows in (flat, real, csa[1]) for p in PAST))
        short = _short_scan(draft, new, kernel)
        rest = {tp: _rest(shape, new, csa[tp], flat, short) for tp in TPS}
        scan = _scan(shape, csa, flat, rest, short)
        topk = _monotone(new, real)
        source = module_source(draft, "sglang", "context")
        scan_name = f"index_scan_prefill.{shape.name}"
        _grid(draft, scan_name, scan, source, "scan inside the CSA module, FP8 keys")
        _grid(draft, f"topk_prefill.{shape.name}", topk, "aic.sglang.topk", "realistic scores")
        # Rows with a full selection and more than a launch: around the threshold it is microseconds.
        full = {k: v for k, v in real.items() if v >= 10.0 and k[1] >= shape.saturation_tokens}
        _compare(draft, f"topk_prefill.{shape.name}", full, topk)
        for tp in TPS:
            name = f"csa_prefill.sglang.{shape.name}.tp{tp}"
            _grid(draft, name, rest[tp], source, "CSA module without scan and top-k")
            for (n, p), us in csa[tp].items():
                if (n, p) in flat and _off_grid(new, n, p):  # with the flat top-k that the row ran
                    guess = rest[tp].at(n, p) + scan.at(n, p) + flat[n, p]
                    draft.compare(name, guess, us)
                    draft.compare(scan_name, guess, us)
            name = f"hca_prefill.sglang.{shape.name}.tp{tp}"
            hca_rows = module_rows(draft, "sglang", "hca", "context", shape, tp)
            hca = _monotone(new, hca_rows)
            _grid(draft, name, hca, source, "HCA module")
            _compare(draft, name, hca_rows, hca)
            base = _base(draft, shape, tp, rest[tp])
            _add_vllm(draft, shape, tp, rest[tp], hca, kernel)
            for engine in ("sglang", "vllm"):
                draft.add_table(
                    f"csa_prefill_share.{engine}.{shape.name}.tp{tp}",
                    {"new_tokens": new},
                    base,
                    module_source(draft, engine, "context"),
                    "share of csa_prefill at past 0 that batched prompts of at most 128 tokens take"
                    + ("" if engine == "sglang" else "; SGLang's"),
                    unit="share",
                )


def _base(draft: Draft, shape: Shape, tp: int, rest: Cells) -> list[float]:
    """Share of the rest that is left when no chunk has entries of its own to attend to."""
    table = draft.table("sparse_attention", "sglang", SGLANG, "dsv4_csa_context_module_perf")
    picked = table.where(model=model_label(table, shape), tp_size=tp, gemm_type="fp8_block", step=0).groups(
        "batch_size", "isl"
    )
    floor = draft.operations["index_scan_floor"].line()
    curve: dict[int, list[float]] = {}
    for (batch, isl), us in picked.items():
        if isl <= _SHORT and batch * isl <= rest.new[-1]:
            curve.setdefault(batch * isl, []).append(us - floor.at(batch * isl))
    points = sorted(curve)
    values = rising([float(np.median(curve[p])) for p in points])
    return [min(interpolate(points, values, n) / rest[n, 0], 1.0) for n in rest.new]


def _short_scan(draft: Draft, new: tuple[int, ...], kernel: Rows) -> Cells:
    """Stand-alone scan for a short past; sizes the table lacks from floor and arithmetic rate."""
    rate = draft.operations["index_scan.v4-flash.fp8"].term("matrix")
    floor = draft.operations["index_scan_floor"].values[0]
    return Cells(
        new, {(n, p): kernel.get((n, p), floor + n * (p + n / 2) / 4 * rate) for n in new for p in PAST}
    )


def _rest(shape: Shape, new: tuple[int, ...], csa: Rows, flat: Rows, short: Cells) -> Cells:
    cells = {}
    for n in new:
        for p in PAST:
            q = min(p, shape.saturation_tokens)
            cells[n, p] = csa[n, q] - flat[n, q] - short[n, q]
    return _monotone(new, cells)


def _scan(shape: Shape, csa: dict[int, Rows], flat: Rows, rest: dict[int, Cells], short: Cells) -> Cells:
    """The scan of long rows: median over TP of what the module leaves; short rows from the kernel."""
    sat = shape.saturation_tokens
    cells = {}
    for n in short.new:
        for p in PAST:
            cells[n, p] = short[n, p]
            if p > sat:
                left = [csa[tp][n, p] - flat[n, p] - rest[tp][n, p] for tp in csa]
                cells[n, p] = max(float(np.median(left)), short[n, sat])
    return _monotone(short.new, cells)


def _add_vllm(draft: Draft, shape: Shape, tp: int, rest: Cells, hca: Cells, kernel: Rows) -> None:
    csa_rows = module_rows(draft, "vllm", "csa", "context", shape, tp)
    hca_rows = module_rows(draft, "vllm", "hca", "context", shape, tp)
    source = module_source(draft, "vllm", "context")
    csa_values: Rows = {}
    hca_values: Rows = {}
    for n in rest.new:
        hca_start = _at_zero(hca_rows, n)
        if n <= shape.saturation_tokens:
            start = _at_zero(csa_rows, n) - kernel[n, 0]
        else:
            start = rest[n, 0] * hca_start / hca[n, 0]
        share = _growth_share(n, hca_rows, hca)
        for p in PAST:
            csa_values[n, p] = start + (rest[n, p] - rest[n, 0])
            hca_values[n, p] = hca_start + (hca[n, p] - hca[n, 0]) * share
    csa_cells, hca_cells = _monotone(rest.new, csa_values), _monotone(rest.new, hca_values)
    name = f"csa_prefill.vllm.{shape.name}.tp{tp}"
    note = "CSA module without scan and top-k; composed: vLLM at past 0, growth with past of SGLang"
    _grid(draft, name, csa_cells, source, note)
    for (n, p), us in csa_rows.items():
        selected = n + p > shape.saturation_tokens
        if p <= 128 and not selected and (n, p) in kernel and _off_grid(rest.new, n, p):
            draft.compare(name, csa_cells.at(n, p) + kernel[n, p], us)
    name = f"hca_prefill.vllm.{shape.name}.tp{tp}"
    _grid(draft, name, hca_cells, source, "HCA module; growth beyond the table composed from SGLang's")
    _compare(draft, name, hca_rows, hca_cells)


def _at_zero(rows: Rows, n: int) -> float:
    """A row without past; some tables lack a few chunk sizes."""
    sizes = sorted(m for m, p in rows if p == 0)
    return interpolate(sizes, [rows[m, 0] for m in sizes], max(n, sizes[0]))


def _growth_share(n: int, rows: Rows, hca: Cells) -> float:
    """How vLLM's growth with past compares with SGLang's, at vLLM's longest row of this chunk size."""
    past = max((p for m, p in rows if m == n), default=0)
    ours = hca.at(n, past) - hca[n, 0]
    if (n, 0) not in rows or ours < 0.05 * hca[n, 0]:  # too little growth to compare
        return 1.0
    return min(max((rows[n, past] - rows[n, 0]) / ours, 0.3), 1.2)


def _grid(draft: Draft, name: str, cells: Cells, source: str, note: str) -> None:
    rows = [[cells[n, p] for p in PAST] for n in cells.new]
    draft.add_table(name, {"new_tokens": cells.new, "past_tokens": PAST}, rows, source, note)


def _off_grid(new: tuple[int, ...], n: int, p: int) -> bool:
    """Inside the domain, but no node."""
    return n <= new[-1] and p <= PAST[-1] and (n not in new or p not in PAST)


def _compare(draft: Draft, name: str, rows: Rows, cells: Cells) -> None:
    for (n, p), us in rows.items():
        if _off_grid(cells.new, n, p):
            draft.compare(name, cells.at(n, p), us)
