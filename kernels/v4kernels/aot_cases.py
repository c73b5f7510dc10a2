"""Every kernel configuration that a launcher can pick, as data for the ahead-of-time compiler.

A case names a kernel, its constants as the launcher sets them, and the tensor-core instruction that
must come out per architecture. Pairs that cannot exist are declared here with the reason, so that
nothing emulates them quietly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from v4kernels import layouts
from v4kernels.attention import BLOCK_ENTRIES, BLOCK_HEADS, MAX_SPLITS, combine_kernel
from v4kernels.attention_halves import halves_kernel
from v4kernels.attention_whole import whole_kernel
from v4kernels.compressor import compress_kernel, store_states_kernel
from v4kernels.gather import gather_kernel, translate_kernel
from v4kernels.index_scan import BLOCK_ENTRIES as INDEX_BLOCK
from v4kernels.index_scan import index_scan_kernel
from v4kernels.mhc import BLOCK_K as MHC_BLOCK_K
from v4kernels.mhc import collapse_kernel, expand_kernel, mix_kernel
from v4kernels.moe_grouped_gemm import ACTIVATIONS, BLOCK_K, BLOCK_OUT, grouped_gemm_kernel, swiglu_kernel
from v4kernels.page_copy import copy_entries_kernel, copy_pages_kernel
from v4kernels.shapes import HCA_COMPRESSOR, HEAD_DIM, INDEX_COMPRESSOR, SINKHORN_ITERATIONS, CompressorShape
from v4kernels.topk import BLOCK, POOL, block_maxima_kernel, count_kernel, settle_kernel, split_kernel

HOPPER, BLACKWELL, BLACKWELL_ULTRA = 90, 100, 103
ARCHS = (HOPPER, BLACKWELL, BLACKWELL_ULTRA)
NO_TENSOR_CORE = dict.fromkeys(ARCHS, "")

UNSUPPORTED = {
    ("index_scan", "fp4", HOPPER): "sm_90 has no FP4 matrix unit; Hopper serves FP8 index keys",
    ("grouped_gemm", "fp8", HOPPER): "sm_90 has no block-scaled product; Hopper serves bf16 activations",
    ("grouped_gemm", "fp4", HOPPER): "sm_90 has no FP4 matrix unit; Hopper serves bf16 activations",
    (
        "attention",
        "fp4_288",
        HOPPER,
    ): "V4.1's two formats need the whole form, whose sums live in tensor memory",
}
# Triton 3.6 cannot lower a block-scaled product inside this loop (`tmem_alloc` verifier error); 3.9 can.
OLDEST_TRITON = {("index_scan", "fp4"): (3, 7)}


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


def index_scan_cases() -> Iterator[Case]:
    """Both key formats, 64 and V4.1's 32 heads, 1 to 8 tokens per group, and candidate lists."""
    types = {
        **dict.fromkeys(("q_scale_ptr",), "*u8"),
        **dict.fromkeys(("weight_ptr", "scale_ptr", "logit_ptr"), "*fp32"),
        **dict.fromkeys(("table_ptr", "request_ptr", "start_ptr", "visible_ptr", "candidate_ptr"), "*i32"),
        **dict.fromkeys(("table_stride", "logit_stride", "num_candidates", "blocks_per_split"), "i32"),
    }
    blackwell = {False: "tcgen05.mma.cta_group::1.kind::f8f6f4", True: "kind::mxf4.block_scale"}
    for fmt in (layouts.INDEX_FP8, layouts.INDEX_FP4):
        fp4 = fmt is layouts.INDEX_FP4
        element = "*u8" if fp4 else "*fp8e4nv"
        instruction = {BLACKWELL: blackwell[fp4], BLACKWELL_ULTRA: blackwell[fp4]}
        if not fp4:
            instruction[HOPPER] = "wgmma.mma_async.sync.aligned.m64n"
        for heads in (64, 32):
            for tokens in range(1, 9):
                for candidates in (0, 8) if tokens == 1 else (0,):
                    yield Case(
                        index_scan_kernel,
                        f"{'fp4' if fp4 else 'fp8'}-{heads}h-{tokens}t{'-candidates' if candidates else ''}",
                        {**types, "q_ptr": element, "data_ptr": element},
                        {
                            "FP4": fp4,
                            "HEADS": heads,
                            "TOKENS": tokens,
                            "PAGE_ENTRIES": 64,
                            "PAGE_BYTES": fmt.page_bytes(64),
                            "CANDIDATE_ENTRIES": candidates,
                            "RELOAD_WEIGHTS": tokens > 1,
                            "BLOCK_N": INDEX_BLOCK,
                        },
                        instruction,
                        num_stages=4,
                        covering=(heads, tokens, candidates) in ((64, 1, 0), (64, 4, 0), (32, 1, 8)),
                        aligned=("table_stride", "logit_stride"),
                    )


def topk_cases() -> Iterator[Case]:
    """All numbers of spans and the three widths of the result."""
    ints = dict.fromkeys(("length_ptr", "histogram_ptr", "index_ptr", "pool_column_ptr", "found_ptr"), "*i32")
    types = {
        **ints,
        **dict.fromkeys(("logit_ptr", "pool_logit_ptr", "best_ptr"), "*fp32"),
        "visible_ptr": "*i32",
        **dict.fromkeys(("logit_stride", "span", "k", "best_stride"), "i32"),
    }
    for splits in (1, 2, 4, 8, 16, 32):
        for kernel, constants in ((count_kernel, {}), (split_kernel, {"POOL": POOL})):
            yield Case(
                kernel,
                f"{splits}-spans",
                types,
                {"SPLITS": splits, "BLOCK": BLOCK, **constants},
                NO_TENSOR_CORE,
                num_warps=8,
                covering=splits == 32,
                aligned=("logit_stride", "span", "k"),
            )
    for k in (512, 1024, 2048):
        yield Case(
            settle_kernel,
            f"k{k}",
            types,
            {"K_PADDED": k, "POOL": POOL, "BLOCK": BLOCK},
            NO_TENSOR_CORE,
            num_warps=8,
            covering=k == 1024,
            aligned=("logit_stride", "k"),
        )
    yield Case(
        block_maxima_kernel,
        "8-entries",
        types,
        {"ENTRIES": 8, "BLOCK": 256},
        NO_TENSOR_CORE,
        covering=True,
        aligned=("logit_stride", "best_stride"),
    )


def attention_cases() -> Iterator[Case]:
    """Window alone, selected slots, dense pages; one range or several; V4.1's formats; the merge."""
    types = {
        **dict.fromkeys(("window_byte_ptr", "extra_byte_ptr"), "*u8"),
        **dict.fromkeys(("window_fp8_ptr", "extra_fp8_ptr"), "*fp8e4nv"),
        **dict.fromkeys(("q_ptr", "window_half_ptr", "extra_half_ptr", "out_ptr"), "*bf16"),
        **dict.fromkeys(
            ("window_slot_ptr", "extra_slot_ptr", "table_ptr", "request_ptr", "visible_ptr"), "*i32"
        ),
        **dict.fromkeys(("sink_ptr", "partial_ptr", "stat_ptr", "acc_ptr"), "*fp32"),
        "scale_log2": "fp32",
        **dict.fromkeys(
            ("window_columns", "extra_columns", "table_stride", "blocks_per_split", "splits"), "i32"
        ),
    }
    whole = dict.fromkeys((BLACKWELL, BLACKWELL_ULTRA), "tcgen05.mma.cta_group::1.kind::f16")
    forms = ((whole_kernel, whole), (halves_kernel, {HOPPER: "wgmma.mma_async.sync.aligned.m64n"}))
    v4, v41 = (layouts.FP8_584, layouts.FP8_584), (layouts.FP8_528, layouts.FP4_288)
    pages = {"slots": 64, "dense": 2, "none": 256}
    for kernel, instruction in forms:
        for kind, heads, formats in (
            ("slots", 64, v4),
            ("slots", 128, v4),
            ("slots", 64, v41),
            ("dense", 64, v4),
            ("dense", 128, v4),
            ("none", 64, v4),
            ("none", 128, v4),
        ):
            if kernel is halves_kernel and formats is v41:
                continue
            window, extra = formats
            for split in (True, False):
                yield Case(
                    kernel,
                    f"{extra.name}-{kind}-{heads}h-{'parts' if split else 'one'}",
                    types,
                    {
                        "HEADS": heads,
                        "EXTRA": kind,
                        "WINDOW_FORMAT": window.name,
                        "WINDOW_SHIFT": 8,
                        "WINDOW_PAGE_BYTES": window.page_bytes(256),
                        "EXTRA_FORMAT": extra.name,
                        "EXTRA_SHIFT": pages[kind].bit_length() - 1,
                        "EXTRA_PAGE_BYTES": extra.page_bytes(pages[kind]),
                        "SPLIT": split,
                        "BLOCK_H": BLOCK_HEADS,
                        "BLOCK_N": BLOCK_ENTRIES,
                    },
                    instruction,
                    num_warps=8,
                    num_stages=2,
                    covering=heads == 64 and split == (kind == "dense"),
                    aligned=("window_columns", "extra_columns"),
                )
    for heads in (64, 128):
        yield Case(
            combine_kernel,
            f"{heads}h",
            types,
            {"HEADS": heads, "MAX_SPLITS": MAX_SPLITS, "BLOCK_H": 8},
            NO_TENSOR_CORE,
            covering=heads == 64,
        )


def compressor_cases() -> Iterator[Case]:
    """The compressors of V4 and V4.1 with and without room for verify tokens, and the ring write."""
    types = {
        **dict.fromkeys(("state_ptr", "ring_ptr", "bias_ptr", "norm_ptr", "rope_ptr", "float_ptr"), "*fp32"),
        **dict.fromkeys(("entry_ptr", "chunk_ptr", "row_ptr"), "*i32"),
        "byte_ptr": "*u8",
        "fp8_ptr": "*fp8e4nv",
        "half_ptr": "*bf16",
        "eps": "fp32",
    }
    main = CompressorShape(HEAD_DIM, 4, overlap=True)
    for shape, fmt, page in (
        (main, layouts.FP8_584, 64),
        (INDEX_COMPRESSOR, layouts.INDEX_FP8, 64),
        (INDEX_COMPRESSOR, layouts.INDEX_FP4, 64),
        (HCA_COMPRESSOR, layouts.FP8_584, 2),
        (CompressorShape(HEAD_DIM, 2, overlap=False), layouts.FP4_288, 64),
        (CompressorShape(HEAD_DIM, 1, overlap=False), layouts.FP4_288, 64),
    ):
        for ring in (max(shape.window, 8), 2 * max(shape.window, 8)):
            yield Case(
                compress_kernel,
                f"{fmt.name}-ratio{shape.ratio}-ring{ring}",
                types,
                {
                    "RING": ring,
                    "DIM": shape.dim,
                    "RATIO": shape.ratio,
                    "SERIES": shape.series,
                    "TILE": min(8, shape.window),
                    "SHIFT": page.bit_length() - 1,
                    "PAGE_BYTES": fmt.page_bytes(page),
                    "FORMAT": fmt.name,
                },
                NO_TENSOR_CORE,
                covering=ring == max(shape.window, 8),
            )
    for shape, ring in (
        (main, 8),
        (main, 16),
        (HCA_COMPRESSOR, 128),
        (HCA_COMPRESSOR, 256),
        (INDEX_COMPRESSOR, 8),
    ):
        yield Case(
            store_states_kernel,
            f"width{shape.state_width}-ring{ring}",
            types,
            {"RING": ring, "WIDTH": shape.state_width, "BLOCK": min(shape.state_width, 1024)},
            NO_TENSOR_CORE,
            covering=(shape, ring) == (main, 8),
        )


def moe_cases() -> Iterator[Case]:
    """Each activation format and block width, and the SwiGLU."""
    types = {
        **dict.fromkeys(("x_scale_ptr", "w_ptr", "w_scale_ptr", "scale_ptr"), "*u8"),
        "block_ptr": "*i32",
        "gate_up_ptr": "*bf16",
        "limit": "fp32",
        **dict.fromkeys(("outputs", "inputs", "width"), "i32"),
    }
    elements = {"fp8": "*fp8e4nv", "fp4": "*u8", "bf16": "*bf16"}
    scaled = {"fp8": "kind::mxf8f6f4.block_scale", "fp4": "kind::mxf4.block_scale"}
    for activation in ACTIVATIONS:
        if activation == "bf16":
            instruction = {
                HOPPER: "wgmma.mma_async.sync.aligned.m64n",
                **dict.fromkeys((BLACKWELL, BLACKWELL_ULTRA), "tcgen05.mma.cta_group::1.kind::f16"),
            }
        else:
            instruction = dict.fromkeys((BLACKWELL, BLACKWELL_ULTRA), scaled[activation])
        for block_tokens in (16, 32, 64, 128):
            yield Case(
                grouped_gemm_kernel,
                f"{activation}-{block_tokens}t",
                {**types, "x_ptr": elements[activation], "out_ptr": "*bf16"},
                {
                    "ACTIVATION": activation,
                    "BLOCK_T": block_tokens,
                    "BLOCK_O": BLOCK_OUT,
                    "BLOCK_I": BLOCK_K,
                },
                instruction,
                num_warps=8 if block_tokens == 128 and activation == "bf16" else 4,
                covering=block_tokens in (16, 128),
                aligned=("outputs", "inputs"),
            )
        yield Case(
            swiglu_kernel,
            activation,
            {**types, "out_ptr": elements[activation]},
            {"ACTIVATION": activation, "BLOCK": 256},
            NO_TENSOR_CORE,
            covering=True,
            aligned=("width",),
        )


def mhc_cases() -> Iterator[Case]:
    """Decode and prefill tiles; the mixing product is TF32, three times, on whatever matrix unit takes
    M = 16."""
    types = {
        **dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "*bf16"),
        **dict.fromkeys(("fn_ptr", "partial_ptr", "base_ptr", "scale_ptr", "post_ptr", "comb_ptr"), "*fp32"),
        **dict.fromkeys(("tokens", "width", "span", "hidden"), "i32"),
        **dict.fromkeys(("norm_eps", "eps"), "fp32"),
    }
    for block_tokens in (16, 32):
        yield Case(
            mix_kernel,
            f"{block_tokens}t",
            types,
            {"BLOCK_T": block_tokens, "BLOCK_K": MHC_BLOCK_K},
            dict.fromkeys(ARCHS, "tf32"),
            covering=True,
            aligned=("width", "span"),
        )
    for splits in (1, 2, 4, 8, 16, 32):
        yield Case(
            collapse_kernel,
            f"{splits}-splits",
            types,
            {"SPLITS": splits, "ITERATIONS": SINKHORN_ITERATIONS, "BLOCK": 1024},
            NO_TENSOR_CORE,
            covering=splits == 32,
            aligned=("hidden",),
        )
    yield Case(
        expand_kernel, "1024", types, {"BLOCK": 1024}, NO_TENSOR_CORE, covering=True, aligned=("hidden",)
    )


def copy_cases() -> Iterator[Case]:
    """Entries of each format between pages of 2, 64 and 256; whole pages; gather and translate."""
    types = {
        **dict.fromkeys(("source_ptr", "target_ptr", "source_slot_ptr", "target_slot_ptr"), "*i32"),
        **dict.fromkeys(("source_page_ptr", "target_page_ptr"), "*i32"),
        **dict.fromkeys(("index_ptr", "table_ptr", "request_ptr", "candidate_ptr", "slot_ptr"), "*i32"),
        "byte_ptr": "*u8",
        "fp8_ptr": "*fp8e4nv",
        "half_ptr": "*bf16",
        "out_ptr": "*bf16",
        **dict.fromkeys(("count", "words", "k", "table_stride", "candidate_stride"), "i32"),
    }
    for fmt in layouts.FORMATS.values():
        data, scale, page = fmt.data_bytes // 4, fmt.scale_bytes // 4, fmt.page_bytes(64) // 4
        yield Case(
            copy_entries_kernel,
            fmt.name,
            types,
            {
                "DATA_WORDS": data,
                "SCALE_WORDS": scale,
                "SOURCE_SHIFT": 6,
                "SOURCE_PAGE_WORDS": page,
                "TARGET_SHIFT": 6,
                "TARGET_PAGE_WORDS": page,
                "ROWS": 8,
                "DATA_BLOCK": 1 << (data - 1).bit_length(),
                "SCALE_BLOCK": 1 << (scale - 1).bit_length(),
            },
            NO_TENSOR_CORE,
            covering=fmt is layouts.FP8_584,
        )
    for fmt in (layouts.FP8_584, layouts.FP8_528, layouts.FP4_288):
        yield Case(
            gather_kernel,
            fmt.name,
            types,
            {"SHIFT": 6, "PAGE_BYTES": fmt.page_bytes(64), "FORMAT": fmt.name, "BLOCK": 16},
            NO_TENSOR_CORE,
            covering=True,
        )
    yield Case(
        copy_pages_kernel, "1024", types, {"BLOCK": 1024}, NO_TENSOR_CORE, covering=True, aligned=("words",)
    )
    for entries in (0, 8):
        yield Case(
            translate_kernel,
            "candidates" if entries else "pages",
            types,
            {"SHIFT": 6, "CANDIDATE_ENTRIES": entries, "BLOCK": 512},
            NO_TENSOR_CORE,
            covering=entries == 0,
            aligned=("k",),
        )


def cases() -> list[Case]:
    """All of them, in a fixed order."""
    return [
        *index_scan_cases(),
        *topk_cases(),
        *attention_cases(),
        *compressor_cases(),
        *moe_cases(),
        *mhc_cases(),
        *copy_cases(),
    ]
