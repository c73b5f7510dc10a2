"""FLOPs and bytes of each operation of a layer: the legs of a roofline, not a time.

Shapes as in the model: n = query tokens of one step, S = native tokens in the context, h = hidden, H = heads,
d = head_dim, q = q_lora_rank, g x r = o_groups x o_lora_rank, Hi x di = index heads x dim, I = MoE
intermediate, m = 2 where a compressor overlaps (ratio 4), else 1. One FLOP is one multiply or one add.
Bytes are those that must move through HBM once, weights included, beyond the activations of the step.

Formulas follow NVIDIA aiconfigurator's speed-of-light model of DeepSeek-V4 (at 095f58a), FlashMLA's
2 H (d_qk + d_v) per key, DeepGEMM's index logits, and were recomputed here. `tp` cuts heads; the index
scan is replicated on every rank and is never cut. Left out: RoPE, norms, quantisation.
"""

from __future__ import annotations

from typing import NamedTuple

from v4sim.model.shapes import Layer
from v4sim.model.spec import ModelSpec


class OpCount(NamedTuple):
    """Work of one operation: arithmetic and HBM traffic."""

    flops: int
    bytes: int


def entries(context: int, ratio: int) -> int:
    """Compressed entries that a query sees whose context, itself included, is `context` tokens."""
    return context // ratio


def scanned_entries(spec: ModelSpec, layer: Layer, context: int) -> int:
    """Index keys that one query of this layer scores: all, or the pool that the pool layer published."""
    if not layer.selects:
        return 0
    total = entries(context, layer.ratio)
    pool_layer = spec.index.pool_layer
    if pool_layer is not None and layer.index > pool_layer:
        return min(total, spec.index.pool_tokens)
    return total


def read_entries(spec: ModelSpec, layer: Layer, context: int) -> int:
    """Main entries that one query of this layer attends to, the window apart."""
    if layer.kind == "swa":
        return 0
    total = entries(context, layer.ratio)
    return total if layer.kind == "dense" else min(total, spec.index.topk)


def projections(spec: ModelSpec, n: int, tp: int = 1) -> OpCount:
    """q_a [h,q] and kv [h,d] on every rank; q_b [q,Hd/tp], o_a per group [Hd/g,r], o_b [gr/tp,h].

    FP8 weights, o_a in BF16 (no FP8 grouped kernel).
    """
    a = spec.attention
    wide = a.heads * a.head_dim // tp
    replicated = a.hidden * a.q_lora_rank + a.hidden * a.head_dim
    cut = a.q_lora_rank * wide + a.o_groups * a.o_lora_rank * a.hidden // tp
    o_a = wide * a.o_lora_rank
    return OpCount(2 * n * (replicated + cut + o_a), replicated + cut + 2 * o_a)


def compressor(spec: ModelSpec, layer: Layer, n: int) -> OpCount:
    """kv and gate projections of main and index entries; one fp32 state row written per token."""
    params = spec.compressor_params(layer)
    if not params:
        return OpCount(0, 0)
    return OpCount(2 * n * params, params + n * state_row_values(spec, layer.ratio) * 4)


def state_row_values(spec: ModelSpec, ratio: int) -> int:
    """fp32 values of one main state row (kv and score): twice as many where groups overlap."""
    width = 2 if ratio in spec.compressor.overlap_ratios else 1
    return 2 * width * spec.attention.head_dim


def index_query(spec: ModelSpec, layer: Layer, n: int) -> OpCount:
    """Index query [q, Hi di] in FP8 and head weights [h, Hi] in BF16; replicated on every TP rank."""
    if not layer.selects:
        return OpCount(0, 0)
    a, i = spec.attention, spec.index
    query, heads = a.q_lora_rank * i.heads * i.dim, a.hidden * i.heads
    return OpCount(2 * n * (query + heads), query + 2 * heads)


def index_scan(
    spec: ModelSpec, layer: Layer, n: int, context: int, index_dtype: str, requests: int = 1
) -> OpCount:
    """Scores of n queries over the index keys: 2 Hi di FLOPs a pair, keys read once a request.

    The n queries are spread evenly over `requests`; queries of one request (a verify window) share its key
    read. Logits are written and read as fp32. The ReLU-weighted head sum, 2 Hi a pair on the FP32 pipe, is
    `index_head_sum_flops`.
    """
    keys = scanned_entries(spec, layer, context)
    return OpCount(
        2 * n * keys * spec.index.heads * spec.index.dim,
        requests * keys * spec.index_bytes[index_dtype] + 2 * n * keys * 4,
    )


def index_head_sum_flops(spec: ModelSpec, layer: Layer, n: int, context: int) -> int:
    """FP32 work of the scan: a ReLU and a multiply-add per head and pair, off the tensor cores."""
    return 3 * n * scanned_entries(spec, layer, context) * spec.index.heads


def topk(spec: ModelSpec, layer: Layer, n: int, context: int) -> OpCount:
    """Reads the fp32 logits once."""
    return OpCount(0, n * scanned_entries(spec, layer, context) * 4)


def attention(spec: ModelSpec, layer: Layer, n: int, context: int, tp: int = 1) -> OpCount:
    """Softmax over window and selected (or all) entries: 4 H d a key; entries read per query, plus Q and O.

    q [n, H/tp, d] BF16, keys [n, window + k, entry bytes], out like q. A layer without compressed entries
    is the window alone.
    """
    a, e = spec.attention, spec.entries
    heads = a.heads // tp
    window = min(context, a.sliding_window)
    chosen = read_entries(spec, layer, context)
    main, swa = (e.main_bytes, e.swa_bytes)
    q_and_o = 2 * n * heads * a.head_dim * 2
    return OpCount(
        4 * n * heads * a.head_dim * (window + chosen), n * (window * swa + chosen * main) + q_and_o
    )


def routed_moe(spec: ModelSpec, n: int, distinct_experts: float, weights: str) -> OpCount:
    """6 h I per token and active expert; each expert that is hit streams its three matrices once."""
    return OpCount(
        2 * n * spec.moe.active_experts * spec.expert_params,
        round(distinct_experts * spec.expert_bytes(weights)),
    )


def expected_distinct_experts(spec: ModelSpec, n: int) -> float:
    """Experts hit by n tokens that choose uniformly and independently: E (1 - (1 - k/E)^n)."""
    total, active = spec.moe.routed_experts, spec.moe.active_experts
    return float(total * (1.0 - (1.0 - active / total) ** n))


def shared_expert(spec: ModelSpec, n: int) -> OpCount:
    """Every token, FP8 weights."""
    params = spec.moe.shared_experts * spec.expert_params
    return OpCount(2 * n * params, params)


def mhc(spec: ModelSpec, n: int) -> OpCount:
    """Two sublayers of [m h] -> m (m + 2) in fp32; the m-stream residual is read and written for each."""
    m, h = spec.mhc.mult, spec.hidden
    return OpCount(2 * n * spec.mhc_params_per_layer, 4 * spec.mhc_params_per_layer + 2 * 2 * n * m * h * 4)


def lm_head(spec: ModelSpec, n: int, tp: int = 1) -> OpCount:
    """[h, V/tp] in BF16."""
    params = spec.embedding_params // tp
    return OpCount(2 * n * params, 2 * params)


def dispatch_bytes(spec: ModelSpec, n: int) -> int:
    """All-to-all out: FP8 hidden with one scale byte per 32 values, to each active expert's rank."""
    return n * spec.moe.active_experts * (spec.hidden + spec.hidden // 32)


def combine_bytes(spec: ModelSpec, n: int) -> int:
    """All-to-all back: BF16 hidden from each active expert's rank."""
    return n * spec.moe.active_experts * 2 * spec.hidden


def all_reduce_bytes(spec: ModelSpec, n: int) -> int:
    """One BF16 all-reduce of the hidden state."""
    return n * 2 * spec.hidden


def index_scan_flops(spec: ModelSpec, context: int) -> int:
    """Scan FLOPs of one decode token over all layers."""
    return sum(
        index_scan(spec, layer, 1, context, spec.index_dtypes[0]).flops for layer in spec.index_sources
    )


def index_bytes_per_step(spec: ModelSpec, context: int, index_dtype: str) -> int:
    """Index keys one sequence reads in a decode step, all layers."""
    return sum(
        scanned_entries(spec, layer, context) * spec.index_bytes[index_dtype] for layer in spec.index_sources
    )


def all_miss_bytes(spec: ModelSpec) -> int:
    """Main entries one decode token fetches over the host link if no selected entry is on the device."""
    return spec.index.topk * spec.entries.main_bytes * len(spec.index_sources)


def hot_buffer_bytes(spec: ModelSpec, buffer_entries: int) -> int:
    """Device bytes of a buffer of `buffer_entries` main entries in each selecting layer, per request."""
    return buffer_entries * spec.entries.main_bytes * len(spec.index_sources)


def index_scratch_bytes(spec: ModelSpec, rows: int, context: int) -> int:
    """Index logits that a step of `rows` query tokens keeps at once, in one layer, on every TP rank.

    V4: fp32, rows x context/ratio. V4.1's dense path: 6 bytes (fp32 and its 16-bit masked copy) for each
    of rows x context at ratio 1.
    """
    ratio = min((layer.ratio for layer in spec.index_sources), default=0)
    if not ratio:
        return 0
    bytes_per_logit = 6 if spec.index.pool_layer is not None else 4
    return rows * (context // ratio) * bytes_per_logit


def deepep_buffer_bytes(spec: ModelSpec, tokens: int) -> int:
    """Low-latency buffers of DeepEP: two of `tokens` BF16 rows for every expert of the group (its size
    hint, the combine side being the larger)."""
    return 2 * spec.moe.routed_experts * tokens * 2 * spec.hidden


def megamoe_buffer_bytes(spec: ModelSpec, tokens: int) -> int:
    """Symmetric buffers of MegaMoE: `tokens` dispatched and combined rows for each active expert.
    Inferred from what the kernel moves; its exact layout was not found."""
    return dispatch_bytes(spec, tokens) + combine_bytes(spec, tokens)
