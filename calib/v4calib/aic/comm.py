"""Collectives and expert dispatch inside one node.

All-reduce: the engines' own kernels under CUDA graphs, which switch to NCCL by size themselves. All-gather
and reduce-scatter: NCCL. DeepEP: low-latency (decode) and normal with 24 SMs (prefill), dispatch plus
combine, eight GPUs. TP sizes of the attention and MoE tables contain none of these (trap 4).
"""

from __future__ import annotations

import numpy as np

from v4calib.aic.draft import Draft
from v4calib.aic.shapes import SGLANG, SHAPES, VLLM
from v4calib.aic.source import Table
from v4calib.curves import interpolate, rising, thin

NCCL = "2.29.2"
DEEPEP = "0.5.12"
_SMS = 24


def add_collectives(draft: Draft) -> None:
    for engine, version, backend in (("sglang", SGLANG, "sglang_graph"), ("vllm", VLLM, "vllm_graph")):
        table = draft.table("comm", engine, version, "custom_allreduce_perf")
        graph = sorted({str(b) for b in table["backend"] if str(b).endswith("graph")})
        backend = backend if backend in graph else graph[0]
        source = draft.published(
            f"aic.{engine}.all_reduce",
            f"comm/{engine}/{version}/custom_allreduce_perf, CUDA graph",
            {engine: version},
            "custom all-reduce",
        )
        rows = table.where(backend=backend)
        eager = rows_of_backend(table, backend.replace("graph", "eager"))
        gaps = [us - graph_us for key, us in eager.items() if (graph_us := _key_rows(rows).get(key))]
        draft.add_fit(
            f"eager_launch.{engine}",
            {"operations": (1, 10_000)},
            [("per_operation", max(float(np.median(gaps)), 0.0), ("operations",))],
            "sum",
            source,
            "eager minus graph time of a small custom all-reduce: what one operation outside a graph adds",
            assumed=0.4,
        )
        for gpus in (2, 4, 8):
            _curve(draft, f"all_reduce.{engine}.gpus{gpus}", rows.where(num_gpus=gpus), source)
    table = draft.table("comm", "nccl", NCCL, "nccl_perf").where(nccl_dtype="half")
    source = draft.published("aic.nccl", f"comm/nccl/{NCCL}/nccl_perf, half", {"nccl": NCCL}, "NCCL")
    for op in ("all_gather", "reduce_scatter"):
        for gpus in (2, 4, 8):
            _curve(draft, f"{op}.gpus{gpus}", table.where(op_name=op, num_gpus=gpus), source)


_SMALL_BYTES = 65_536


def _key_rows(rows: Table) -> dict[tuple[int, ...], float]:
    return {k: us for k, us in rows.groups("num_gpus", "message_size").items() if k[1] <= _SMALL_BYTES}


def rows_of_backend(table: Table, backend: str) -> dict[tuple[int, ...], float]:
    """Small messages of one backend, by GPUs and bytes."""
    return _key_rows(table.where(backend=backend))


def _curve(draft: Draft, name: str, rows: Table, source: str) -> None:
    if not len(rows):
        return
    curve = {size: us for (size,), us in rows.groups("message_size").items() if np.isfinite(us)}
    _add(draft, name, "bytes", curve, source, "bytes of the whole tensor")


def _add(draft: Draft, name: str, axis: str, curve: dict[int, float], source: str, note: str) -> None:
    points, values = thin(curve, 0.03)
    draft.add_table(name, {axis: points}, values, source, note)
    monotone = dict(zip(curve, rising(list(curve.values())), strict=True))
    for x, us in monotone.items():
        if x not in points:
            draft.compare(name, interpolate(points, values, x), us)


def add_deepep(draft: Draft) -> None:
    source = draft.published(
        "aic.deepep",
        f"comm/sglang/{DEEPEP}/wideep_deepep_(ll|normal)_perf, one node, EP8",
        {"sglang": DEEPEP},
        "DeepEP",
    )
    low = draft.table("comm", "sglang", DEEPEP, "wideep_deepep_ll_perf")
    normal = draft.table("comm", "sglang", DEEPEP, "wideep_deepep_normal_perf")
    for shape in SHAPES:
        key = {
            "node_num": 1,
            "hidden_size": shape.hidden,
            "num_topk": shape.active,
            "num_experts": shape.experts,
        }
        rows = low.where(**key)
        total = {t: 0.0 for (t,) in rows.groups("num_token", value="dispatch_avg_t_us")}
        for column in ("dispatch_avg_t_us", "combine_avg_t_us"):
            for (t,), us in rows.groups("num_token", value=column).items():
                total[t] += us
        note = "dispatch + combine, tokens of one rank, eight ranks"
        _add(draft, f"deepep_ll.{shape.name}", "tokens", total, source, note)
        rows = normal.where(**key, dispatch_sms=_SMS)
        total = {t: 0.0 for (t,) in rows.groups("num_token", value="dispatch_transmit_us")}
        for column in (
            "dispatch_transmit_us",
            "dispatch_notify_us",
            "combine_transmit_us",
            "combine_notify_us",
        ):
            for (t,), us in rows.groups("num_token", value=column).items():
                total[t] += us
        kept = {t: us for t, us in total.items() if t <= 65_536}
        _add(draft, f"deepep_normal.{shape.name}", "tokens", kept, source, f"{note}, {_SMS} SMs")
