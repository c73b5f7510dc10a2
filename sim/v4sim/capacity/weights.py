"""Bytes of weights on one GPU, by what they are.

Rules: attention is cut over attention_tp and repeated on every DP rank; what every head shares (q_a,
kv, compressors, indexer) is repeated on every GPU; experts are spread over ep groups and cut inside a
group; the shared expert is cut like an expert; embedding and LM head are cut over attention_tp.
Formats: experts FP4 or FP8, dense matrices FP8 (o_a BF16: no FP8 grouped kernel), router, embedding and
LM head BF16, mHC fp32. Norms and biases are left out (< 0.1 %).
"""

from __future__ import annotations

from v4sim.config.deployment import Deployment
from v4sim.model import ModelSpec
from v4sim.model.ops import projections


def weight_bytes(deployment: Deployment, spec: ModelSpec) -> dict[str, int]:
    """Bytes per GPU of a resolved deployment by name; redundant experts and draft head apart."""
    weights = deployment.model.weights
    assert weights is not None
    parallel = deployment.parallel
    layers, tp = spec.num_layers, parallel.attention_tp
    expert = spec.expert_bytes(weights) // deployment.moe_tp
    shared = spec.moe.shared_experts * spec.expert_params // deployment.moe_tp
    found = {
        "attention": layers * projections(spec, 0, tp).bytes,
        "indexer and compressors": sum(
            spec.compressor_params(layer) + spec.indexer_params(layer) for layer in spec.layers
        ),
        "router and mhc": layers * (2 * spec.router_params_per_layer + 4 * spec.mhc_params_per_layer),
        "shared experts": layers * shared,
        "routed experts": layers * (spec.moe.routed_experts // parallel.ep) * expert,
        "embedding and lm head": 2 * 2 * spec.embedding_params // tp,
    }
    if spec.engram and deployment.engine.engram == "device":
        rows = sum(table.rows * table.row_bytes for table in spec.engram)
        found["engram"] = rows // deployment.gpus_per_replica
    if deployment.engine.redundant_experts:
        found["eplb"] = layers * (deployment.engine.redundant_experts // parallel.ep) * expert
    if deployment.speculation.kind != "off":
        found["draft head"] = draft_bytes(deployment, spec)
    return found


def draft_bytes(deployment: Deployment, spec: ModelSpec) -> int:
    """The draft head: window-only layers with experts of their own and a [2h, h] projection each; it shares
    embedding and LM head with the model."""
    weights = deployment.model.weights
    assert weights is not None
    head = spec.speculators[deployment.speculation.kind]
    expert = spec.expert_bytes(weights) // deployment.moe_tp
    shared = spec.moe.shared_experts * spec.expert_params // deployment.moe_tp
    experts = -(-head.experts // deployment.parallel.ep) * expert
    dense = projections(spec, 0, deployment.parallel.attention_tp).bytes + 2 * spec.hidden * spec.hidden
    return head.layers * (dense + experts + shared)
