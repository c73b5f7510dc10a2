"""Collectives and expert dispatch inside one node.

All-reduce: the engines' own kernels under CUDA graphs, which switch to NCCL by size themselves. All-gather
and reduce-scatter: NCCL. DeepEP: low-latency (decode) and normal with 24 SMs (prefill), dispatch plus
combine, eight GPUs. TP sizes of the attention and MoE tables contain none of these (trap 4).

Host time of an operation that no graph replays. SGLang's experts behind DeepEP were timed without graphs,
and at few tokens no GPU work hides the host that launches ten operations (copy of the counts, two scatters,
two alignments or a fill, two grouped GEMMs, activation, quantisation, gather; moe_runner/deep_gemm.py): 0.30
to 0.87 ms on six x86 hosts, 0.5 on two with Grace. A GPU says nothing about its host, so all hosts of a kind
are one sample: the geometric mean, and its spread as the residual. vLLM launches the same kernels from
Python, too (0.25.0 models/deepseek_v4/nvidia/model.py is not compiled), and none of its tables says what
that costs: a small all-reduce outside graphs, 14 us, has no Python around it.
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
        _add_eager_launch(draft, engine)
        for gpus in (2, 4, 8):
            _curve(draft, f"all_reduce.{engine}.gpus{gpus}", rows.where(num_gpus=gpus), source)
        if draft.gpu in _GRACE and not len(rows.where(num_gpus=8)):
            _borrow_reduce(draft, engine)
    table = draft.table("comm", "nccl", NCCL, "nccl_perf").where(nccl_dtype="half")
    source = draft.published("aic.nccl", f"comm/nccl/{NCCL}/nccl_perf, half", {"nccl": NCCL}, "NCCL")
    for op in ("all_gather", "reduce_scatter"):
        for gpus in (2, 4, 8):
            _curve(draft, f"{op}.gpus{gpus}", table.where(op_name=op, num_gpus=gpus), source)
        if draft.gpu in _GRACE:
            chip = draft.source.table(_CHIP, "comm", "nccl", NCCL, "nccl_perf").where(nccl_dtype="half")
            _compose_rack(draft, op, table.where(op_name=op), chip.where(op_name=op), source)


def _borrow_reduce(draft: Draft, engine: str) -> None:
    """All-reduce of eight GPUs where a table ends at the four of a tray: rows of GB300, on the same links.

    Between trays the engines leave their own kernel for NCCL, so nothing on one node stands for it.
    """
    version = _RACK_VERSIONS[engine]
    table = draft.source.table(_RACK, "comm", engine, version, "custom_allreduce_perf")
    backends = sorted({str(b) for b in table["backend"] if str(b).endswith("graph")})
    source = draft.published(
        f"aic.{engine}.all_reduce.rack",
        f"comm/{engine}/{version}/custom_allreduce_perf of GB300, CUDA graph",
        {engine: version},
        "all-reduce between trays",
    )
    points, values = thin(_by_size(table.where(backend=backends[0], num_gpus=8)), 0.03)
    note = "bytes of the whole tensor; rows of GB300"
    draft.add_table(f"all_reduce.{engine}.gpus8", {"bytes": points}, values, source, note, assumed=0.3)


def _compose_rack(draft: Draft, name: str, rows: Table, chip: Table, source: str) -> None:
    """NCCL over eight GPUs of a rack: rows of its four, times what eight take of four on B200."""
    four, eight = (_by_size(chip.where(num_gpus=gpus)) for gpus in (4, 8))
    curve = {
        size: us * eight[size] / four[size]
        for size, us in _by_size(rows.where(num_gpus=4)).items()
        if size in four and size in eight
    }
    note = "bytes of the whole tensor; composed from four GPUs and from what eight take of four on B200"
    points, values = thin(curve, 0.03)
    draft.add_table(f"{name}.gpus8", {"bytes": points}, values, source, note, assumed=0.3)


def _by_size(rows: Table) -> dict[int, float]:
    return {size: us for (size,), us in rows.groups("message_size").items() if np.isfinite(us)}


_EXPERTS = "wideep_context_moe_perf"
_EXPERTS_VERSIONS = ("0.5.6.post2", "0.5.10")
_EXPERT_OPERATIONS = 10
_LAUNCH_ERROR = 0.8
_CHIP, _RACK = "b200", "gb300"
_RACK_VERSIONS = {"sglang": SGLANG, "vllm": "0.27.0"}
_GRACE, _X86 = ("gb200", "gb300"), ("b200", "b300", "h100", "h200")


def _add_eager_launch(draft: Draft, engine: str) -> None:
    """What an operation outside graphs costs the host."""
    floors = []
    for gpu in _GRACE if draft.gpu in _GRACE else _X86:
        for version in _EXPERTS_VERSIONS:
            if draft.source.has(gpu, "moe", "sglang", version, _EXPERTS):
                rows = draft.source.table(gpu, "moe", "sglang", version, _EXPERTS)
                floors.append(float(np.quantile(rows.where(distribution="uniform")["us"], 0.1)))
    logs = np.log(floors)
    source = draft.published(
        "aic.sglang.deepep_experts",
        f"moe/sglang/{_EXPERTS} of {', '.join(_EXPERTS_VERSIONS)}, uniform, hosts of one kind",
        {"sglang": _EXPERTS_VERSIONS[-1]},
        "experts behind DeepEP, without graphs",
    )
    draft.add_fit(
        f"eager_launch.{engine}",
        {"operations": (1, 10_000)},
        [("per_operation", float(np.exp(logs.mean())) / _EXPERT_OPERATIONS, ("operations",))],
        "sum",
        source,
        f"time of the experts at few tokens over their {_EXPERT_OPERATIONS} operations, {len(floors)} hosts",
        assumed=max(1.96 * float(logs.std(ddof=1)), _LAUNCH_ERROR),
    )


def _curve(draft: Draft, name: str, rows: Table, source: str) -> None:
    if not len(rows):
        return
    _add(draft, name, "bytes", _by_size(rows), source, "bytes of the whole tensor")


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
