"""The references agree with `transformers`' own DeepSeek-V4 on shared random weights (extra:
transformers 5.24)."""

from __future__ import annotations

import pytest
import torch

from v4kernels.reference.model import TinyModel
from v4kernels.reference.tiny import TinyShape, random_weights

transformers = pytest.importorskip(
    "transformers", minversion="5.24.0", reason="needs transformers 5.24 as oracle"
)

KINDS = {
    "swa": "sliding_attention",
    "csa": "compressed_sparse_attention",
    "hca": "heavily_compressed_attention",
}


@pytest.fixture(scope="module")
def pair():
    """The tiny model with an exact cache, and transformers' model with the same weights, both fp64."""
    from transformers.models.deepseek_v4 import DeepseekV4Config
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4Model

    # With few heads all of them are often cut off by the ReLU: logits tie at 0, and torch.topk has no rule
    # for ties.
    s = TinyShape(index_heads=16)
    config = DeepseekV4Config(
        vocab_size=s.vocab,
        hidden_size=s.hidden,
        moe_intermediate_size=s.expert_dim,
        num_hidden_layers=len(s.layers),
        num_attention_heads=s.heads,
        head_dim=s.head_dim,
        q_lora_rank=s.q_lora_rank,
        num_experts_per_tok=s.experts_per_token,
        n_routed_experts=s.experts,
        layer_types=[KINDS[kind] for kind in s.layers],
        compress_rates={KINDS["csa"]: s.csa_ratio, KINDS["hca"]: s.hca_ratio},
        mlp_layer_types=["hash_moe"] * s.hash_layers + ["moe"] * (len(s.layers) - s.hash_layers),
        sliding_window=s.window,
        o_groups=s.o_groups,
        o_lora_rank=s.o_lora_rank,
        index_n_heads=s.index_heads,
        index_head_dim=s.index_dim,
        index_topk=s.index_topk,
        partial_rotary_factor=s.rope_dim / s.head_dim,
        max_position_embeddings=512,
        attn_implementation="eager",
    )
    weights = random_weights(s, torch.Generator().manual_seed(3))
    theirs = DeepseekV4Model(config).eval()
    state = theirs.state_dict()
    for name, value in weights.items():
        key = name if name in state else name + ".weight"
        assert state[key].shape == value.shape, (key, state[key].shape, value.shape)
        state[key] = value
    missing = [k for k in state if k not in weights and k.removesuffix(".weight") not in weights]
    assert not missing, f"transformers has weights the reference lacks: {missing}"
    theirs.load_state_dict(state)
    return TinyModel(s, weights, quantised=False, dtype=torch.float32), theirs


def agree(ours, theirs):
    # Both in fp32, four layers; transformers' rsqrt, softmax and Sinkhorn run in another order of operations.
    error = (ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)
    assert float(error.max()) < 2e-4, error


@torch.no_grad()
def test_prefill(pair):
    """70 tokens at once through all kinds of layers."""
    ours, theirs = pair
    prompt = torch.randint(0, ours.shape.vocab, (70,), generator=torch.Generator().manual_seed(4))
    agree(ours.extend(ours.new_session(), prompt), theirs(prompt[None], use_cache=False).last_hidden_state[0])


@torch.no_grad()
def test_decode_with_cache(pair):
    """21 tokens of prefill, then one at a time through transformers' own cache."""
    ours, theirs = pair
    prompt = torch.randint(0, ours.shape.vocab, (50,), generator=torch.Generator().manual_seed(5))
    session = ours.new_session()
    result = theirs(prompt[None, :21], use_cache=True)
    agree(ours.extend(session, prompt[:21]), result.last_hidden_state[0])
    for t in range(21, 50):
        result = theirs(prompt[None, t : t + 1], cache=result.cache, use_cache=True)
        agree(ours.extend(session, prompt[t : t + 1]), result.last_hidden_state[0])
