"""Memory that a step needs beside weights and cache: graphs, activations, index logits, dispatch buffers.

Estimates from shapes, for one GPU. The index logits are exact for the dense path of the engines; the
rest is good to a few hundred MiB and says so in the ledger. The framework share is NVIDIA
aiconfigurator's `other_mem`.
"""

from __future__ import annotations

from v4sim.config.deployment import Deployment
from v4sim.config.resolve import RankLimits
from v4sim.model import ModelSpec
from v4sim.model.hardware import MIB
from v4sim.model.ops import (
    deepep_buffer_bytes,
    index_scratch_bytes,
    megamoe_buffer_bytes,
)

FRAMEWORK_BYTES = 3_500_000_000
GRAPH_BYTES_PER_ROW = 2 * MIB  # SGLang's reserved-memory formula


def step_tokens(deployment: Deployment, limits: RankLimits) -> int:
    """Most query tokens of one rank's step. Without chunking a whole prompt is one step."""
    decode = min(limits.max_running, limits.graph_max_bs) * deployment.verify_width
    prefill = limits.chunk_tokens if limits.chunk_tokens is not None else deployment.model.max_context_tokens
    return max(decode, prefill)


def graph_bytes(limits: RankLimits) -> int:
    return GRAPH_BYTES_PER_ROW * limits.graph_max_bs


def scratch_bytes(deployment: Deployment, spec: ModelSpec, limits: RankLimits) -> int:
    """Index logits of the largest step at the longest context, within the tile size if there is one."""
    whole = index_scratch_bytes(spec, step_tokens(deployment, limits), deployment.model.max_context_tokens)
    tile_gib = deployment.engine.index_tile_gib
    return min(whole, round(tile_gib * (1 << 30))) if tile_gib else whole


def activation_bytes(deployment: Deployment, spec: ModelSpec, limits: RankLimits) -> int:
    """Live activations of the largest step.

    Per token: the residual streams twice (fp32), q and the attention output (BF16), and for each expert that
    works on it here its input, gate and up and output rows. Logits (fp32) for one row a sequence and draft.
    """
    parallel, a, moe = deployment.parallel, spec.attention, spec.moe
    tokens = step_tokens(deployment, limits)
    residual = 2 * spec.mhc.mult * spec.hidden * 4
    heads = 2 * (a.heads // parallel.attention_tp) * a.head_dim * 2
    pairs_per_token = moe.active_experts * parallel.attention_dp / parallel.ep
    expert_rows = 3 * spec.hidden + 5 * moe.intermediate // deployment.moe_tp
    logit_rows = min(limits.max_running, limits.graph_max_bs) * deployment.verify_width
    logits = logit_rows * (spec.vocab // parallel.attention_tp) * 4
    return tokens * (residual + heads) + round(tokens * pairs_per_token * expert_rows) + logits


def dispatch_buffer_bytes(deployment: Deployment, spec: ModelSpec) -> int:
    """Communication buffers of the MoE backend."""
    tokens = deployment.engine.dispatch_tokens_per_rank
    if tokens is None:
        return 0
    if deployment.engine.moe_backend == "deepep":
        return deepep_buffer_bytes(spec, tokens)
    return megamoe_buffer_bytes(spec, tokens)
