"""The dimensions of a tiny V4 and random weights for it, in the names of the published checkpoints' modules.

Used by the reference model and by its comparison with other implementations. Weights are seeded, never
zero, and scaled so that activations keep their size from layer to layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TinyShape:
    """Dimensions; the defaults are V4-Flash divided until a CPU runs it in milliseconds."""

    hidden: int = 64
    heads: int = 4
    head_dim: int = 32
    rope_dim: int = 8
    q_lora_rank: int = 32
    o_groups: int = 2
    o_lora_rank: int = 16
    index_heads: int = 4
    index_dim: int = 16
    index_topk: int = 4
    window: int = 8
    csa_ratio: int = 4
    hca_ratio: int = 16
    experts: int = 8
    experts_per_token: int = 2
    expert_dim: int = 32
    routed_scale: float = 1.5
    hash_layers: int = 1
    vocab: int = 97
    layers: tuple[str, ...] = ("swa", "csa", "hca", "csa")
    theta: float = 10000.0
    compressed_theta: float = 160000.0
    eps: float = 1e-6
    swiglu_limit: float = 10.0
    sinkhorn: int = 20


def random_weights(shape: TinyShape, generator: torch.Generator) -> dict[str, Tensor]:
    """Weights of unit-variance layers, named as `transformers` names them."""

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator) * size[-1] ** -0.5

    s = shape
    weights = {
        "embed_tokens": torch.randn(s.vocab, s.hidden, generator=generator),
        "norm": _near_one(s.hidden, generator),
    }
    weights |= {
        "hc_head.hc_fn": draw(4, 4 * s.hidden),
        "hc_head.hc_base": torch.randn(4, generator=generator),
        "hc_head.hc_scale": torch.rand(1, generator=generator) + 0.5,
    }
    for layer, kind in enumerate(s.layers):
        p = f"layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[p + norm] = _near_one(s.hidden, generator)
        for site in ("attn_hc.", "ffn_hc."):
            weights[p + site + "fn"] = draw(24, 4 * s.hidden)
            weights[p + site + "base"] = torch.randn(24, generator=generator)
            weights[p + site + "scale"] = torch.rand(3, generator=generator) + 0.5
        a = p + "self_attn."
        weights |= {
            a + "q_a_proj": draw(s.q_lora_rank, s.hidden),
            a + "q_a_norm": _near_one(s.q_lora_rank, generator),
            a + "q_b_proj": draw(s.heads * s.head_dim, s.q_lora_rank),
            a + "kv_proj": draw(s.head_dim, s.hidden),
            a + "kv_norm": _near_one(s.head_dim, generator),
            a + "o_a_proj": draw(s.o_groups * s.o_lora_rank, s.heads * s.head_dim // s.o_groups),
            a + "o_b_proj": draw(s.hidden, s.o_groups * s.o_lora_rank),
            a + "sinks": torch.randn(s.heads, generator=generator),
        }
        compressors = [] if kind == "swa" else [("compressor.", s.head_dim)]
        if kind == "csa":
            compressors.append(("compressor.indexer.", s.index_dim))
        for name, dim in compressors:
            c = a + name
            series, ratio = (2, s.csa_ratio) if kind == "csa" else (1, s.hca_ratio)
            weights[c + "kv_proj"] = draw(series * dim, s.hidden)
            weights[c + "gate_proj"] = draw(series * dim, s.hidden)
            weights[c + "position_bias"] = torch.randn(ratio, series * dim, generator=generator)
            weights[c + "kv_norm"] = _near_one(dim, generator)
        if kind == "csa":
            c = a + "compressor.indexer."
            weights[c + "q_b_proj"] = draw(s.index_heads * s.index_dim, s.q_lora_rank)
            weights[c + "scorer.weights_proj"] = draw(s.index_heads, s.hidden)
        m = p + "mlp."
        weights |= {
            m + "gate.weight": draw(s.experts, s.hidden),
            m + "experts.gate_up_proj": draw(s.experts, 2 * s.expert_dim, s.hidden),
            m + "experts.down_proj": draw(s.experts, s.hidden, s.expert_dim),
            m + "shared_experts.gate_proj": draw(s.expert_dim, s.hidden),
            m + "shared_experts.up_proj": draw(s.expert_dim, s.hidden),
            m + "shared_experts.down_proj": draw(s.hidden, s.expert_dim),
        }
        if layer < s.hash_layers:
            picks = [
                torch.randperm(s.experts, generator=generator)[: s.experts_per_token] for _ in range(s.vocab)
            ]
            weights[m + "gate.tid2eid"] = torch.stack(picks)
        else:
            weights[m + "gate.e_score_correction_bias"] = torch.randn(s.experts, generator=generator) * 0.1
    return weights


def _near_one(size: int, generator: torch.Generator) -> Tensor:
    return 0.75 + 0.5 * torch.rand(size, generator=generator)
