"""Every kernel configuration that a launcher can pick, as data for the ahead-of-time compiler.

A case names a kernel, its constants as the launcher sets them, and the tensor-core instruction that
must come out per architecture. Pairs that cannot exist are declared here with the reason, so that
nothing emulates them quietly.
"""

from __future__ import annotations

from collections.abc import Iterator

from v4kernels import layouts
from v4kernels.aot_case import BLACKWELL, BLACKWELL_ULTRA, HOPPER, NO_TENSOR_CORE, Case
from v4kernels.aot_cases_dense import compressor_cases, copy_cases, mhc_cases, moe_cases, norm_rope_cases
from v4kernels.attention import BLOCK_ENTRIES, BLOCK_HEADS, MAX_SPLITS, combine_kernel, stages
from v4kernels.attention_halves import halves_kernel
from v4kernels.attention_whole import whole_kernel
from v4kernels.index_scan import BLOCK_ENTRIES as INDEX_BLOCK
from v4kernels.index_scan import index_scan_kernel, warps
from v4kernels.topk import (
    BLOCK,
    POOL,
    SETTLE_BLOCK,
    block_maxima_kernel,
    count_kernel,
    settle_kernel,
    split_kernel,
)

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
# Triton 3.6 cannot lower a block-scaled product inside this loop (`tmem_alloc` verifier error), and spills
# two registers with FP8 keys, 32 heads and three tokens, which no model has; 3.9 does both.
OLDEST_TRITON = {("index_scan", "fp4"): (3, 7), ("index_scan", "fp8-32h-3t"): (3, 7)}


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
                        num_warps=warps(fp4, tokens),
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
            {"K_PADDED": k, "POOL": POOL, "BLOCK": SETTLE_BLOCK},
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
    forms = (
        ("whole", whole_kernel, whole),
        ("halves", halves_kernel, {HOPPER: "wgmma.mma_async.sync.aligned.m64n"}),
    )
    v4, v41 = (layouts.FP8_584, layouts.FP8_584), (layouts.FP8_528, layouts.FP4_288)
    pages = {"slots": 64, "dense": 2, "none": 256}
    for form, kernel, instruction in forms:
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
                    num_stages=stages(form),
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


def cases() -> list[Case]:
    """All of them, in a fixed order."""
    return [
        *index_scan_cases(),
        *topk_cases(),
        *attention_cases(),
        *compressor_cases(),
        *moe_cases(),
        *mhc_cases(),
        *norm_rope_cases(),
        *copy_cases(),
    ]
