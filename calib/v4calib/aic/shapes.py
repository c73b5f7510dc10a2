"""The two models the published tables hold, and how their rows name them."""

from __future__ import annotations

from dataclasses import dataclass

SGLANG = "0.5.14"
VLLM = "0.24.0"
TPS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Shape:
    """What the importer must know of a model; values of the published configurations."""

    name: str
    label: str  # occurs in the tables' model column
    hidden: int
    heads: int
    topk: int
    experts: int
    intermediate: int
    vocab: int = 129_280
    active: int = 6
    head_dim: int = 512

    @property
    def saturation_tokens(self) -> int:
        """Context above which a CSA query attends to its full top-k."""
        return 4 * self.topk

    def expert_bytes_mxfp4(self) -> float:
        """One routed expert at 4.25 bits a value."""
        return 3 * self.hidden * self.intermediate * 17 / 32


SHAPES = (
    Shape("v4-flash", "V4-Flash", 4096, 64, 512, 256, 2048),
    Shape("v4-pro", "V4-Pro", 7168, 128, 1024, 384, 3072),
)
