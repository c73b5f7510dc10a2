"""`Case`: one kernel configuration for the ahead-of-time compiler, and the architectures it is
compiled for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

HOPPER, BLACKWELL, BLACKWELL_ULTRA = 90, 100, 103
ARCHS = (HOPPER, BLACKWELL, BLACKWELL_ULTRA)
NO_TENSOR_CORE = dict.fromkeys(ARCHS, "")


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration of one kernel."""

    kernel: Any
    variant: str
    types: dict[str, str]
    constants: dict[str, Any]
    instruction: dict[int, str]
    """Architecture to the PTX instruction that must be there ("" for none); other architectures are not
    compiled."""
    num_warps: int = 4
    num_stages: int = 3
    covering: bool = False
    aligned: tuple[str, ...] = field(default=())
    """Integer arguments that are multiples of 16 in every launch: Triton specialises on that."""

    @property
    def name(self) -> str:
        return f"{self.kernel.__name__.removesuffix('_kernel')}/{self.variant}"
