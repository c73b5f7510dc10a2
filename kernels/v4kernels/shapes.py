"""Dimensions of the three V4 models as the kernels see them: plain numbers, no torch.

Source: the released `config.json` files (DeepSeek-V4-Flash, -Pro, V4.1-Flash). Only what a kernel needs is
here; layer schedules, parallelism and cache policy belong to the simulator, which has its own model specs.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD_DIM = 512  # one latent, key and value at once
ROPE_DIM = 64  # trailing dimensions that carry RoPE
NOPE_DIM = HEAD_DIM - ROPE_DIM
INDEX_DIM = 128
WINDOW = 128  # sliding-window tokens, the query itself included
PAGE_TOKENS = 256  # native tokens per page in SGLang and vLLM
MAX_VERIFY = 8  # tokens of one sequence that share a key read
STREAMS = 4  # mHC residual streams
SINKHORN_ITERATIONS = 20


@dataclass(frozen=True, slots=True)
class CompressorShape:
    """One compressor: `ratio` tokens give one entry of `dim` channels; overlap reads the group before
    too.
    """

    dim: int
    ratio: int
    overlap: bool

    @property
    def series(self) -> int:
        """Compressed series per token: two where groups overlap."""
        return 2 if self.overlap else 1

    @property
    def window(self) -> int:
        """Tokens one entry depends on; also the smallest ring of states."""
        return self.ratio * self.series

    @property
    def state_width(self) -> int:
        """Values a token leaves in the ring: key and gate of each series."""
        return 2 * self.series * self.dim


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Kernel-facing dimensions of one model."""

    name: str
    hidden: int
    heads: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    index_heads: int
    index_topk: int
    experts: int
    experts_per_token: int
    expert_dim: int
    vocab: int
    csa_ratios: tuple[int, ...]
    """Tokens per entry of the indexed families: 4 in V4, 2 and 1 in V4.1."""
    hca_ratio: int | None
    main_format: str
    """Entry format of compressed entries, a name in `v4kernels.layouts`."""
    window_format: str
    candidate_blocks: int = 0
    candidate_block_entries: int = 0

    @property
    def candidate_entries(self) -> int:
        return self.candidate_blocks * self.candidate_block_entries

    def csa_compressor(self, ratio: int) -> CompressorShape:
        """Main compressor of an indexed layer; only V4's ratio 4 overlaps."""
        return CompressorShape(HEAD_DIM, ratio, overlap=ratio == 4)


V4_FLASH = ModelShape(
    name="v4-flash",
    hidden=4096,
    heads=64,
    q_lora_rank=1024,
    o_groups=8,
    o_lora_rank=1024,
    index_heads=64,
    index_topk=512,
    experts=256,
    experts_per_token=6,
    expert_dim=2048,
    vocab=129280,
    csa_ratios=(4,),
    hca_ratio=128,
    main_format="fp8_584",
    window_format="fp8_584",
)

V4_PRO = ModelShape(
    name="v4-pro",
    hidden=7168,
    heads=128,
    q_lora_rank=1536,
    o_groups=16,
    o_lora_rank=1024,
    index_heads=64,
    index_topk=1024,
    experts=384,
    experts_per_token=6,
    expert_dim=3072,
    vocab=129280,
    csa_ratios=(4,),
    hca_ratio=128,
    main_format="fp8_584",
    window_format="fp8_584",
)

V41_FLASH = ModelShape(
    name="v4.1-flash",
    hidden=5120,
    heads=64,
    q_lora_rank=1280,
    o_groups=8,
    o_lora_rank=1024,
    index_heads=32,
    index_topk=512,
    experts=384,
    experts_per_token=6,
    expert_dim=2304,
    vocab=129280,
    csa_ratios=(2, 1),
    hca_ratio=None,
    main_format="fp4_288",
    window_format="fp8_528",
    candidate_blocks=2048,
    candidate_block_entries=8,
)

MODELS = {shape.name: shape for shape in (V4_FLASH, V4_PRO, V41_FLASH)}

HCA_COMPRESSOR = CompressorShape(HEAD_DIM, 128, overlap=False)
INDEX_COMPRESSOR = CompressorShape(INDEX_DIM, 4, overlap=True)


def model(name: str) -> ModelShape:
    """The shape called `name`."""
    if name not in MODELS:
        raise KeyError(f"no model shape {name!r}; choose one of {', '.join(MODELS)}")
    return MODELS[name]
