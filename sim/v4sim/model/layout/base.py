"""What a byte layout is: the families of a request's state, and what each costs.

Families of a model, named by ratio: `c4`, `c128` (V4) or `c2`, `c1` (V4.1) main entries; `c4_index` index
keys; `swa` sliding-window tokens of every layer; `state` compressor state. A layout says how many bytes
each takes per token, per page and per request. Nothing here knows a pool size: that is `v4sim.capacity`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from v4sim.model.ops import state_row_values
from v4sim.model.spec import ModelSpec

FP32 = 4


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of per-history entry: `layers` owners, one entry per `ratio` native tokens."""

    name: str
    layers: int
    ratio: int
    entry_bytes: int

    def bytes_at(self, tokens: int) -> int:
        """Bytes of the whole entries of a history, unpadded."""
        return self.layers * (tokens // self.ratio) * self.entry_bytes

    @property
    def bytes_per_token(self) -> float:
        return self.layers * self.entry_bytes / self.ratio


@dataclass(frozen=True, slots=True)
class StateRing:
    """Compressor state of one ratio: rows x values of fp32 in each of `layers`."""

    name: str
    layers: int
    ratio: int
    rows: int
    values: int

    @property
    def bytes(self) -> int:
        return self.layers * self.rows * self.values * FP32


def history_families(spec: ModelSpec, index_dtype: str) -> tuple[Family, ...]:
    """Families that grow with the history, main entries before index keys, by ascending ratio."""
    families: list[Family] = []
    index: list[Family] = []
    for ratio in spec.ratios:
        owners = [layer for layer in spec.layers if layer.ratio == ratio and layer.owns_kv]
        families.append(Family(f"c{ratio}", len(owners), ratio, spec.entries.main_bytes))
        selected = [layer for layer in owners if layer.kind == "selected"]
        if selected:
            key_bytes = spec.index_bytes[index_dtype]
            index.append(Family(f"c{ratio}_index", len(selected), ratio, key_bytes))
    return (*families, *index)


def state_rings(spec: ModelSpec, draft_tokens: int = 0) -> tuple[StateRing, ...]:
    """The rings that hold incomplete groups. Speculation doubles them (V4): a rejected draft must be undone.

    V4: two groups of rows where groups overlap, else one group, main and index compressors apart. V4.1
    (latent): ratio-1 layers need none, the others the smallest power of two that holds a verify window,
    at least 8 rows.
    """
    rings: list[StateRing] = []
    double = 2 if draft_tokens else 1
    for ratio in spec.ratios:
        owners = [layer for layer in spec.layers if layer.ratio == ratio and layer.owns_kv]
        values = state_row_values(spec, ratio)
        if spec.compressor.kind == "latent":
            if ratio > 1:
                rows = max(8, 1 << (draft_tokens + 1).bit_length())
                rings.append(StateRing(f"c{ratio}_state", len(owners), ratio, rows, values))
            continue
        overlap = ratio in spec.compressor.overlap_ratios
        rows = ratio * (2 if overlap else 1) * double
        rings.append(StateRing(f"c{ratio}_state", len(owners), ratio, rows, values))
        selected = sum(layer.kind == "selected" for layer in owners)
        if selected:
            width = 2 if overlap else 1
            rings.append(
                StateRing(f"c{ratio}_index_state", selected, ratio, rows, 2 * width * spec.index.dim)
            )
    return tuple(rings)


def state_bytes(spec: ModelSpec, draft_tokens: int = 0) -> int:
    """Compressor state of one request, all rings."""
    return sum(ring.bytes for ring in state_rings(spec, draft_tokens))


class Layout(ABC):
    """Bytes of one engine's cache for one model."""

    name: str

    def __init__(self, spec: ModelSpec, index_dtype: str, page_tokens: int = 256) -> None:
        self.spec = spec
        self.index_dtype = index_dtype
        self.page_tokens = page_tokens
        self.families = history_families(spec, index_dtype)

    @abstractmethod
    def family_bytes(self, tokens: int) -> dict[str, int]:
        """Bytes per family of one request whose history is `tokens` long, `swa` included."""

    def history_bytes(self, tokens: int) -> int:
        """Bytes of one request's history, window included, compressor state apart."""
        return sum(self.family_bytes(tokens).values())

    @property
    @abstractmethod
    def bytes_per_token(self) -> float:
        """Bytes that one more token of a long history takes."""

    @property
    @abstractmethod
    def page_bytes(self) -> int:
        """Bytes of the growing families of `page_tokens` native tokens."""
