"""The architecture of one DeepSeek-V4 model as data, and what follows from it.

A model is a TOML file (`model/specs/*.toml`, or one of your own through `ModelSpec.from_file`); a
fourth model needs no code. What follows from the shapes (layer counts, parameters, owners of KV) is
derived here; FLOPs and bytes of operations are in `v4sim.model.ops`, byte layouts in
`v4sim.model.layout`.

Left out: anything that costs neither time nor memory (RoPE bases, norm constants, router biases).
Units: parameters are counts, sizes are bytes, ratios are native tokens per entry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from v4sim.errors import ConfigError
from v4sim.model.shapes import (
    Attention,
    Compressor,
    EngramTable,
    Entries,
    Index,
    Layer,
    LayerKind,
    Mhc,
    Moe,
    Speculator,
    read_layers,
    read_section,
)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model. Stored: what its configuration says. Derived: what follows from it."""

    name: str
    checkpoint: str
    vocab: int
    max_context_tokens: int
    layers: tuple[Layer, ...]
    encoder_layers: int
    attention: Attention
    index: Index
    entries: Entries
    compressor: Compressor
    moe: Moe
    mhc: Mhc
    speculators: Mapping[str, Speculator] = field(default_factory=dict)
    engram: tuple[EngramTable, ...] = ()

    # Shorthands of the field.
    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def hidden(self) -> int:
        return self.attention.hidden

    @property
    def heads(self) -> int:
        return self.attention.heads

    @property
    def routed_experts(self) -> int:
        return self.moe.routed_experts

    @property
    def index_bytes(self) -> Mapping[str, int]:
        return self.index.bytes

    @property
    def index_dtypes(self) -> tuple[str, ...]:
        return tuple(self.index.bytes)

    @property
    def sliding_window(self) -> int:
        return self.attention.sliding_window

    def _count(self, kind: LayerKind) -> int:
        return sum(layer.kind == kind for layer in self.layers)

    @property
    def n_csa(self) -> int:
        """Layers that read a selection (CSA and CSA2)."""
        return self._count("selected")

    @property
    def n_hca(self) -> int:
        """Layers that read every compressed entry."""
        return self._count("dense")

    @property
    def n_swa(self) -> int:
        """Layers with the sliding window alone."""
        return self._count("swa")

    def owners(self, kind: LayerKind) -> tuple[Layer, ...]:
        """The layers of a kind that store KV of their own."""
        return tuple(layer for layer in self.layers if layer.kind == kind and layer.owns_kv)

    @property
    def index_sources(self) -> tuple[Layer, ...]:
        """The layers that run an index scan."""
        return tuple(layer for layer in self.layers if layer.selects)

    @property
    def ratios(self) -> tuple[int, ...]:
        """The compression ratios in use, ascending."""
        return tuple(sorted({layer.ratio for layer in self.layers if layer.ratio}))

    @property
    def alignment_tokens(self) -> int:
        """Native tokens after which every family has whole entries: the largest ratio in use."""
        return max(self.ratios, default=1)

    # Parameters
    @property
    def expert_params(self) -> int:
        """One routed (or shared) expert: gate, up and down."""
        return 3 * self.hidden * self.moe.intermediate

    @property
    def dense_attention_params(self) -> int:
        """q_a [h, q], q_b [q, H d], kv [h, d], o_a [g, H d/g, r], o_b [g r, h] of one layer."""
        a = self.attention
        wide = a.heads * a.head_dim
        return (
            a.hidden * a.q_lora_rank
            + a.q_lora_rank * wide
            + a.hidden * a.head_dim
            + wide * a.o_lora_rank
            + a.o_groups * a.o_lora_rank * a.hidden
        )

    def compressor_params(self, layer: Layer) -> int:
        """kv and gate projections of the layer's compressors, main and index."""
        a = self.attention
        if not layer.owns_kv:
            return 0
        if self.compressor.kind == "latent":
            projections = 2 if layer.ratio > 1 else 1
            return projections * a.hidden * a.head_dim + a.head_dim * self.index.dim
        width = 2 if layer.ratio in self.compressor.overlap_ratios else 1
        params = 2 * a.hidden * width * a.head_dim
        if layer.kind == "selected":
            params += 2 * a.hidden * width * self.index.dim
        return params

    def indexer_params(self, layer: Layer) -> int:
        """Index query [q, Hi di] and head weights [h, Hi] of a layer that selects."""
        if not layer.selects:
            return 0
        a, i = self.attention, self.index
        return a.q_lora_rank * i.heads * i.dim + a.hidden * i.heads

    def attention_params(self, layer: Layer) -> int:
        return self.dense_attention_params + self.compressor_params(layer) + self.indexer_params(layer)

    @property
    def mhc_params_per_layer(self) -> int:
        """Two sublayers, each [m h] -> pre m, post m and comb m x m."""
        m = self.mhc.mult
        return 2 * m * self.hidden * (2 * m + m * m)

    @property
    def router_params_per_layer(self) -> int:
        return self.hidden * self.moe.routed_experts

    @property
    def embedding_params(self) -> int:
        return self.vocab * self.hidden

    @property
    def dense_params(self) -> int:
        """Everything that every token passes except experts, embedding and LM head."""
        per_layer = self.mhc_params_per_layer + self.router_params_per_layer
        return sum(self.attention_params(layer) + per_layer for layer in self.layers)

    @property
    def total_params(self) -> int:
        """Main model with embedding and LM head; no draft head, no Engram tables."""
        experts = (self.moe.routed_experts + self.moe.shared_experts) * self.num_layers * self.expert_params
        return experts + self.dense_params + 2 * self.embedding_params

    @property
    def active_params(self) -> int:
        """Parameters one decode token multiplies with; the embedding is a lookup and does not count."""
        experts = (self.moe.active_experts + self.moe.shared_experts) * self.num_layers * self.expert_params
        return experts + self.dense_params + self.embedding_params

    @property
    def engram_params(self) -> int:
        return sum(table.params for table in self.engram)

    def expert_bytes(self, weights: str) -> int:
        """One routed expert: MXFP4 has 4.25 bits a value, FP8 one byte (its block scales are 0.02 %)."""
        if weights == "fp4":
            return self.expert_params * 17 // 32
        if weights == "fp8":
            return self.expert_params
        raise ConfigError(f"model.weights = {weights!r}: experts are fp4 or fp8.")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "given values") -> ModelSpec:
        """A model from nested plain values as in a spec file; `ConfigError` names the key that is wrong."""
        try:
            return _build(data)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"The model description ({where}) is incomplete or wrong: {error}. Compare it with a file "
                "of v4sim/model/specs."
            ) from None

    @classmethod
    def from_file(cls, path: str | Path) -> ModelSpec:
        try:
            data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(
                f"The model description {str(path)!r} cannot be read as TOML: {error}."
            ) from None
        return cls.from_dict(data, str(path))


_LAYER_KEYS = frozenset({"compress_ratios", "dense_ratios", "kv_sources", "index_sources", "encoder_layers"})


def _build(data: Mapping[str, Any]) -> ModelSpec:
    attention = data["attention"]
    index = read_section(Index, data["index"], "index")
    return ModelSpec(
        name=str(data["name"]),
        checkpoint=str(data["checkpoint"]),
        vocab=int(data["vocab"]),
        max_context_tokens=int(data["max_context_tokens"]),
        layers=read_layers(attention),
        encoder_layers=int(attention.get("encoder_layers", 0)),
        attention=read_section(Attention, attention, "attention", _LAYER_KEYS),
        index=replace(index, bytes=MappingProxyType(dict(index.bytes))),
        entries=read_section(Entries, data["entries"], "entries"),
        compressor=read_section(Compressor, data["compressor"], "compressor"),
        moe=read_section(Moe, data["moe"], "moe"),
        mhc=read_section(Mhc, data["mhc"], "mhc"),
        speculators=MappingProxyType(
            {
                kind: read_section(Speculator, values, f"speculators.{kind}")
                for kind, values in data.get("speculators", {}).items()
            }
        ),
        engram=tuple(read_section(EngramTable, table, "engram") for table in data.get("engram", ())),
    )
