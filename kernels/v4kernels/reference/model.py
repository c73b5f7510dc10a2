"""A tiny V4 in plain torch: all layer kinds over a paged, quantised cache, resumable, branchable, verifiable.

It composes the other references into a decoder that a serving engine would recognise: prefill in
chunks, extension of a prefix hit, pause and restore of a session, branches that share a prefix, verify
steps whose rejected tokens leave no trace. `quantised=False` keeps the cache exact (what `transformers`
computes); True stores what a 584-byte entry or an index key can hold, so outputs depend on the bytes
and not on how they came to be there.

State of a session per layer is what the design calls families: window latents, compressed main entries, index
keys, and compressor states. Left out: paging (entries lie in lists), tensor parallelism, and MTP's own layer.
Dimensions come from `TinyShape`; head and RoPE sizes may be smaller than the real 512 and 64.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from v4kernels import quant
from v4kernels.reference import mhc
from v4kernels.reference.moe_grouped_gemm import swiglu
from v4kernels.reference.tiny import TinyShape


@dataclass(slots=True)
class LayerState:
    """What one layer remembers of a session, native-token aligned: all families end at the same position."""

    window: Tensor  # [<= window, head_dim], the latest latents
    entries: Tensor  # [entries, head_dim]
    index_keys: Tensor  # [entries, index_dim]
    pending: dict[str, Tensor] = field(default_factory=dict)  # compressor rows since before the open group

    def bytes_equal(self, other: LayerState) -> bool:
        """Bit for bit the same."""
        mine = [self.window, self.entries, self.index_keys, *self.pending.values()]
        theirs = [other.window, other.entries, other.index_keys, *other.pending.values()]
        return self.pending.keys() == other.pending.keys() and all(map(torch.equal, mine, theirs))


@dataclass(slots=True)
class Session:
    """A sequence in progress. `branch` is a deep copy: the prefix is shared content, the futures are not."""

    length: int
    layers: list[LayerState]

    def branch(self) -> Session:
        return copy.deepcopy(self)


class TinyModel:
    """The model: `extend` is the only operation; everything a serving engine does is made of it."""

    def __init__(
        self,
        shape: TinyShape,
        weights: dict[str, Tensor],
        *,
        quantised: bool = True,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.shape, self.quantised, self.dtype = shape, quantised, dtype
        self.weights = {k: v.to(dtype) if v.is_floating_point() else v for k, v in weights.items()}

    def new_session(self) -> Session:
        """A session of no tokens."""
        s = self.shape
        none = [torch.zeros(0, dim, dtype=self.dtype) for dim in (s.head_dim, s.head_dim, s.index_dim)]
        return Session(0, [LayerState(*(t.clone() for t in none)) for _ in s.layers])

    def extend(self, session: Session, tokens: Tensor) -> Tensor:
        """Append tokens [n] to the session; final hidden states [n, hidden]. Any cut into calls gives
        the same."""
        streams = self.weights["embed_tokens"][tokens][:, None, :].repeat(1, 4, 1)
        for layer, kind in enumerate(self.shape.layers):
            p = f"layers.{layer}."
            streams = self._sublayer(
                streams,
                p + "attn_hc.",
                p + "input_layernorm",
                lambda x, i=layer, k=kind: self._attention(x, session, i, k),
            )
            streams = self._sublayer(
                streams,
                p + "ffn_hc.",
                p + "post_attention_layernorm",
                lambda x, i=layer: self._experts(x, tokens, i),
            )
        session.length += len(tokens)
        flat = streams.flatten(1)
        mixes = self._rms(flat) @ self.weights["hc_head.hc_fn"].T
        pre = (
            torch.sigmoid(mixes * self.weights["hc_head.hc_scale"] + self.weights["hc_head.hc_base"])
            + self.shape.eps
        )
        return self._rms((pre[:, :, None] * streams).sum(1)) * self.weights["norm"]

    def _rms(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.shape.eps)

    def _sublayer(self, streams: Tensor, site: str, norm: str, run: Callable[[Tensor], Tensor]) -> Tensor:
        fn, base, scale = (self.weights[site + part] for part in ("fn", "base", "scale"))
        x, post, comb = mhc.collapse(
            streams, fn, base, scale, self.shape.eps, self.shape.eps, self.shape.sinkhorn
        )
        return mhc.expand(streams, run(self._rms(x) * self.weights[norm]), post, comb)

    def _rope(self, x: Tensor, positions: Tensor, kind: str, *, inverse: bool = False) -> Tensor:
        """Interleaved RoPE of the last rope_dim channels; x [n, ..., dim]."""
        s = self.shape
        theta = s.theta if kind == "swa" else s.compressed_theta
        steps = torch.arange(0, s.rope_dim, 2, dtype=torch.float32) / s.rope_dim
        angle = positions.float()[:, None] * (1.0 / theta**steps)
        cos, sin = angle.cos().to(self.dtype), angle.sin().to(self.dtype) * (-1 if inverse else 1)
        if x.dim() == 3:
            cos, sin = cos[:, None], sin[:, None]
        even, odd = x[..., -s.rope_dim :: 2], x[..., 1 - s.rope_dim :: 2]
        turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)
        return torch.cat([x[..., : -s.rope_dim], turned], -1)

    def _store_latent(self, x: Tensor) -> Tensor:
        """What a cache entry holds of x [n, head_dim]: e4m3 with a scale per block, RoPE channels in bf16."""
        if not self.quantised or not len(x):
            return x
        nope, rope = x[:, : -self.shape.rope_dim], x[:, -self.shape.rope_dim :]
        block = nope.shape[1] // 3 if nope.shape[1] % 3 == 0 else nope.shape[1]
        stored = quant.from_e4m3(*quant.to_e4m3(nope.float(), block)).to(self.dtype)
        return torch.cat([stored, rope.to(torch.bfloat16).to(self.dtype)], 1)

    def _store_key(self, x: Tensor) -> Tensor:
        if not self.quantised or not len(x):
            return x
        return quant.from_e4m3(*quant.to_e4m3(x.float(), x.shape[1])).to(self.dtype)

    def _compress(
        self, x: Tensor, session: Session, state: LayerState, name: str, kind: str, dim: int
    ) -> Tensor:
        """New entries of one compressor; `pending` keeps the rows that later entries still need."""
        ratio, series = (self.shape.csa_ratio, 2) if kind == "csa" else (self.shape.hca_ratio, 1)
        w = {part: self.weights[name + part] for part in ("kv_proj", "gate_proj", "position_bias", "kv_norm")}
        rows = torch.cat([x @ w["kv_proj"].T, x @ w["gate_proj"].T], 1)
        kept = state.pending.get(name, rows[:0])
        rows = torch.cat([kept, rows])
        first = session.length - len(kept)  # position of rows[0], a multiple of the ratio
        groups = range(session.length // ratio, (session.length + len(x)) // ratio)
        entries = []
        for group in groups:
            at = group * ratio - first
            current = rows[at : at + ratio].view(ratio, 2, series, dim)
            key, gate = (
                current[:, 0, -1],
                current[:, 1, -1] + w["position_bias"].view(ratio, series, dim)[:, -1],
            )
            if series == 2 and group:
                before = rows[at - ratio : at].view(ratio, 2, series, dim)
                key = torch.cat([before[:, 0, 0], key])
                bias = w["position_bias"].view(ratio, series, dim)[:, 0]
                gate = torch.cat([before[:, 1, 0] + bias, gate])
            entries.append((torch.softmax(gate, 0) * key).sum(0))
        end = session.length + len(x)
        needed = max(0, end // ratio - (series - 1)) * ratio
        state.pending[name] = rows[needed - first :].clone()
        if not entries:
            return x.new_zeros(0, dim)
        pooled = self._rms(torch.stack(entries)) * w["kv_norm"]
        return self._rope(pooled, torch.tensor([g * ratio for g in groups]), kind)

    def _attention(self, x: Tensor, session: Session, layer: int, kind: str) -> Tensor:
        s, state, a = self.shape, session.layers[layer], f"layers.{layer}.self_attn."
        w = self.weights
        n, start = len(x), session.length
        positions = torch.arange(start, start + n)
        q_low = self._rms(x @ w[a + "q_a_proj"].T) * w[a + "q_a_norm"]
        q = self._rope(self._rms((q_low @ w[a + "q_b_proj"].T).view(n, s.heads, s.head_dim)), positions, kind)
        latent = self._rope(self._rms(x @ w[a + "kv_proj"].T) * w[a + "kv_norm"], positions, kind)
        window = torch.cat([state.window, self._store_latent(latent)])
        window_start = start - len(state.window)
        if kind != "swa":
            new = self._compress(x, session, state, a + "compressor.", kind, s.head_dim)
            state.entries = torch.cat([state.entries, self._store_latent(new)])
        index_q = index_w = None
        if kind == "csa":
            i = a + "compressor.indexer."
            keys = self._compress(x, session, state, i, kind, s.index_dim)
            state.index_keys = torch.cat([state.index_keys, self._store_key(keys)])
            index_q = (q_low @ w[i + "q_b_proj"].T).view(n, s.index_heads, s.index_dim)
            index_q = self._rope(index_q, positions, kind)
            index_w = x @ w[i + "scorer.weights_proj"].T * s.index_heads**-0.5 * s.index_dim**-0.5
        outs = []
        for t, position in enumerate(positions.tolist()):
            near = window[max(0, position + 1 - s.window - window_start) : position + 1 - window_start]
            far = state.entries[:0]
            if kind == "hca":
                far = state.entries[: (position + 1) // s.hca_ratio]
            elif kind == "csa":
                seen = (position + 1) // s.csa_ratio
                logits = (torch.relu(index_q[t] @ state.index_keys[:seen].T) * index_w[t][:, None]).sum(0)
                far = state.entries[
                    torch.sort(logits, descending=True, stable=True).indices[: s.index_topk].sort().values
                ]
            latents = torch.cat([near, far])
            scores = torch.cat([q[t] @ latents.T * s.head_dim**-0.5, w[a + "sinks"][:, None]], 1)
            outs.append(torch.softmax(scores, 1)[:, :-1] @ latents)
        state.window = window[-s.window :].clone()
        out = self._rope(torch.stack(outs), positions, kind, inverse=True).reshape(n, s.o_groups, -1)
        o_a = w[a + "o_a_proj"].view(s.o_groups, s.o_lora_rank, -1)
        return torch.einsum("ngi,goi->ngo", out, o_a).flatten(1) @ w[a + "o_b_proj"].T

    def _experts(self, x: Tensor, tokens: Tensor, layer: int) -> Tensor:
        s, m, w = self.shape, f"layers.{layer}.mlp.", self.weights
        scores = torch.nn.functional.softplus(x @ w[m + "gate.weight"].T).sqrt()
        if layer < s.hash_layers:
            picks = w[m + "gate.tid2eid"][tokens]
        else:
            picks = torch.topk(scores + w[m + "gate.e_score_correction_bias"], s.experts_per_token).indices
        weight = scores.gather(1, picks)
        weight = weight / (weight.sum(1, keepdim=True) + 1e-20) * s.routed_scale
        shared = torch.cat([x @ w[m + f"shared_experts.{part}_proj"].T for part in ("gate", "up")], 1)
        out = swiglu(shared, s.swiglu_limit) @ w[m + "shared_experts.down_proj"].T
        for k in range(s.experts_per_token):
            gate_up = torch.einsum("ti,toi->to", x, w[m + "experts.gate_up_proj"][picks[:, k]])
            down = w[m + "experts.down_proj"][picks[:, k]]
            out = out + weight[:, k, None] * torch.einsum("ti,toi->to", swiglu(gate_up, s.swiglu_limit), down)
        return out
