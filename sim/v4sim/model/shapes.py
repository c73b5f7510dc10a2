"""The shapes that a model description consists of, and how they are read from plain values.

Each class is one table of a spec file with the same key names. Unknown and missing keys are
`ValueError`s that name the key; `ModelSpec.from_dict` turns them into a `ConfigError` with the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, TypeVar

LayerKind = Literal["swa", "selected", "dense"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Layer:
    """One transformer layer of the main model.

    kind: "swa" reads only its window; "selected" reads the top-k entries of a compressed history (CSA,
    CSA2); "dense" reads every entry of one (HCA). kv_source and index_source name the layer whose KV and
    whose selection this one uses: itself, an earlier one, or None where it has none.
    """

    index: int
    kind: LayerKind
    ratio: int
    kv_source: int | None
    index_source: int | None

    @property
    def owns_kv(self) -> bool:
        return self.kv_source == self.index

    @property
    def selects(self) -> bool:
        return self.index_source == self.index


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention shapes; K = V = one latent of head_dim values shared by all heads."""

    hidden: int
    heads: int
    head_dim: int
    rope_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    sliding_window: int


@dataclass(frozen=True, slots=True)
class Index:
    """The indexer: heads x dim scores a key, top-k survive; sources after pool_layer see a pool only."""

    heads: int
    dim: int
    topk: int
    bytes: Mapping[str, int]
    pool_layer: int | None = None
    pool_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Entries:
    """Bytes of one main entry and of one sliding-window token, scales included."""

    main_bytes: int
    swa_bytes: int


@dataclass(frozen=True, slots=True)
class Compressor:
    """How entries are made: "gated" pools per ratio with its own index compressor (V4), "latent" derives the
    index key from the main entry (V4.1)."""

    overlap_ratios: tuple[int, ...]
    kind: Literal["gated", "latent"]


@dataclass(frozen=True, slots=True)
class Moe:
    """Routed and shared experts, each three hidden x intermediate matrices."""

    routed_experts: int
    active_experts: int
    shared_experts: int
    intermediate: int
    hash_routed_layers: int
    router_scale: float


@dataclass(frozen=True, slots=True)
class Mhc:
    """Manifold-constrained hyper-connections: the residual has `mult` streams."""

    mult: int
    sinkhorn_iterations: int


@dataclass(frozen=True, slots=True)
class Speculator:
    """A draft head: its layers (sliding window only) and their experts; block = tokens drafted a pass."""

    layers: int
    experts: int
    active_experts: int
    block: int


@dataclass(frozen=True, slots=True)
class EngramTable:
    """One n-gram table, looked up in one layer; row_bytes with its scales."""

    layer: int
    rows: int
    dim: int
    row_bytes: int

    @property
    def params(self) -> int:
        return self.rows * self.dim


def read_layers(section: Mapping[str, Any]) -> tuple[Layer, ...]:
    """Layers with their KV and index sources: themselves, or the last source of that ratio before them."""
    ratios = [int(r) for r in section["compress_ratios"]]
    dense = {int(r) for r in section["dense_ratios"]}
    kv_sources = section.get("kv_sources")
    index_sources = section.get("index_sources")
    layers: list[Layer] = []
    last_kv: dict[int, int] = {}
    last_index: dict[int, int] = {}
    for i, ratio in enumerate(ratios):
        kind: LayerKind = "swa" if not ratio else "dense" if ratio in dense else "selected"
        if ratio and (kv_sources is None or i in kv_sources):
            last_kv[ratio] = i
        if kind == "selected" and (index_sources is None or i in index_sources):
            last_index[ratio] = i
        if ratio and ratio not in last_kv:
            raise ValueError(f"attention.kv_sources: layer {i} has no source before it")
        if kind == "selected" and ratio not in last_index:
            raise ValueError(f"attention.index_sources: layer {i} has no source before it")
        layers.append(
            Layer(
                index=i,
                kind=kind,
                ratio=ratio,
                kv_source=last_kv[ratio] if ratio else None,
                index_source=last_index[ratio] if kind == "selected" else None,
            )
        )
    return tuple(layers)


def read_section(
    kind: type[T], values: Mapping[str, Any], name: str, skip: frozenset[str] = frozenset()
) -> T:
    """A shape from its table; unknown and missing keys are errors, lists become tuples."""
    columns = fields(kind)  # type: ignore[arg-type]  # T is a dataclass: there is no public bound that says so
    names = {f.name for f in columns}
    unknown = sorted(set(values) - names - skip)
    if unknown:
        raise ValueError(f"{name}.{unknown[0]}: no such key (there are {', '.join(sorted(names | skip))})")
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if k not in skip}
    for f in columns:
        if f.name not in given and f.default is MISSING:
            raise ValueError(f"{name}.{f.name}: missing")
        if f.type == "int" and f.name in given and type(given[f.name]) is not int:
            raise ValueError(f"{name}.{f.name} = {given[f.name]!r}: not a whole number")
    return kind(**given)
