"""The rest of `aot_cases`: compressor, experts, mHC and copies."""

from __future__ import annotations

from collections.abc import Iterator

from v4kernels import layouts
from v4kernels.aot_case import ARCHS, BLACKWELL, BLACKWELL_ULTRA, HOPPER, NO_TENSOR_CORE, Case
from v4kernels.compressor import compress_kernel, store_states_kernel
from v4kernels.gather import gather_kernel, translate_kernel
from v4kernels.mhc import BLOCK_K as MHC_BLOCK_K
from v4kernels.mhc import collapse_kernel, expand_kernel, mix_kernel, mix_stages
from v4kernels.moe_grouped_gemm import ACTIVATIONS, BLOCK_K, BLOCK_OUT, grouped_gemm_kernel, swiglu_kernel
from v4kernels.norm_rope import norm_rope_kernel
from v4kernels.norm_rope import warps as norm_rope_warps
from v4kernels.page_copy import copy_entries_kernel, copy_pages_kernel
from v4kernels.shapes import HCA_COMPRESSOR, HEAD_DIM, INDEX_COMPRESSOR, SINKHORN_ITERATIONS, CompressorShape


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
    for block_tokens in (16, 64):
        yield Case(
            mix_kernel,
            f"{block_tokens}t",
            types,
            {"BLOCK_T": block_tokens, "BLOCK_K": MHC_BLOCK_K},
            dict.fromkeys(ARCHS, "tf32"),
            num_warps=8 if block_tokens == 64 else 4,
            num_stages=mix_stages(block_tokens),
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


def norm_rope_cases() -> Iterator[Case]:
    """Each step of a layer at each width that a model and a cut give it."""
    types = {
        **dict.fromkeys(("weight_ptr", "rope_ptr"), "*fp32"),
        "x_ptr": "*bf16",
        "position_ptr": "*i32",
        "scale_ptr": "*u8",
        **dict.fromkeys(("width", "heads"), "i32"),
        "eps": "fp32",
    }
    steps = [("weighted", "none", True, block) for block in (1024, 2048, 4096, 8192)]
    steps += [("none", "none", True, block) for block in (1024, 2048, 4096, 8192, 16_384)]
    steps += [("weighted", "forward", True, 512), ("none", "forward", True, 128)]
    steps += [("unit", "forward", False, 512), ("none", "back", False, 512)]
    for norm, turn, quantise, block in steps:
        yield Case(
            norm_rope_kernel,
            f"{norm}-{turn}-{'e4m3' if quantise else 'bf16'}-{block}",
            {**types, "out_ptr": "*fp8e4nv" if quantise else "*bf16"},
            {"NORM": norm, "TURN": turn, "QUANTISE": quantise, "BLOCK": block},
            NO_TENSOR_CORE,
            num_warps=norm_rope_warps(block),
            covering=turn != "none" or block == 16_384,
            aligned=("width",),
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
