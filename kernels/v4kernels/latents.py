"""Device functions of attention: gather and dequantise latents, one step of the online softmax, the sink."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_latents(
    byte_ptr,
    fp8_ptr,
    half_ptr,
    slots,
    valid,
    first,
    shift,
    page_bytes,
    WIDTH: tl.constexpr,
    ROPE: tl.constexpr,  # whether these dimensions end in the RoPE ones: "no", "yes", or "if_last"
    FORMAT: tl.constexpr,
):
    """bf16 [n, WIDTH]: dimensions from `first` of the latents in `slots`; rows that are not valid are
    zero."""
    rows: tl.constexpr = slots.shape[0]
    page = (slots >> shift).to(tl.int64) * page_bytes
    row = slots & ((1 << shift) - 1)
    column = tl.arange(0, WIDTH)
    there = valid[:, None]
    if FORMAT == "fp8_584":
        GROUPS: tl.constexpr = WIDTH // 64
        group = tl.arange(0, GROUPS)
        data = page + row * 576
        scale_at = page + (576 << shift) + row * 8 + first // 64
        scale = tl.load(byte_ptr + scale_at[:, None] + group[None, :], mask=there, other=0)
        scale = (scale.to(tl.int32) << 23).to(tl.float32, bitcast=True)
        nope = there & (column + first < 448)[None, :]
        values = tl.load(fp8_ptr + (data + first)[:, None] + column[None, :], mask=nope, other=0.0)
        latent = (values.to(tl.float32).reshape(rows, GROUPS, 64) * scale[:, :, None]).to(tl.bfloat16)
        if ROPE != "no":
            # The last 64 dimensions are bf16: bytes 448 .. 575 of the entry, without a scale.
            rope_at = data // 2 + 224
            tail = tl.arange(0, 64)
            in_rope = there
            if ROPE == "if_last":
                in_rope = there & (tail + first >= 512 - WIDTH)[None, :]
            rope = tl.load(half_ptr + rope_at[:, None] + tail[None, :], mask=in_rope, other=0.0)
            last = group == GROUPS - 1
            if ROPE == "if_last":
                last = group * 64 + first == 448
            latent = tl.where(last[None, :, None], rope[:, None, :], latent)
        return latent.reshape(rows, WIDTH)
    elif FORMAT == "fp8_528":
        GROUPS: tl.constexpr = WIDTH // 32
        group = tl.arange(0, GROUPS)
        at = page + row * 512 + first
        scale_at = page + (512 << shift) + row * 16 + first // 32
        scale = tl.load(byte_ptr + scale_at[:, None] + group[None, :], mask=there, other=0)
        scale = (scale.to(tl.int32) << 23).to(tl.float32, bitcast=True)
        values = tl.load(fp8_ptr + at[:, None] + column[None, :], mask=there, other=0.0).to(tl.float32)
        latent = values.reshape(rows, GROUPS, 32) * scale[:, :, None]
        return latent.reshape(rows, WIDTH).to(tl.bfloat16)
    else:
        tl.static_assert(FORMAT == "fp4_288")
        GROUPS: tl.constexpr = WIDTH // 16
        group = tl.arange(0, GROUPS)
        at = page + row * 256 + first // 2
        packed = tl.load(byte_ptr + at[:, None] + tl.arange(0, WIDTH // 2)[None, :], mask=there, other=0)
        codes = tl.join(packed & 0xF, packed >> 4).reshape(rows, WIDTH).to(tl.int32)
        # s|ee|m put at the low exponent bits of an fp32 is the value times 2^-126, its subnormal 0.5
        # included.
        bits = ((codes & 8) << 28) | ((codes & 7) << 22)
        values = bits.to(tl.float32, bitcast=True) * 85070591730234615865843651857942052864.0
        scale_at = page + (256 << shift) + row * 32 + first // 16
        scale = tl.load(fp8_ptr + scale_at[:, None] + group[None, :], mask=there, other=0.0).to(tl.float32)
        return (values.reshape(rows, GROUPS, 16) * scale[:, :, None]).reshape(rows, WIDTH).to(tl.bfloat16)


@triton.jit
def soften(scores, valid, scale_log2, running_max, total):
    """Online softmax of one block, base 2: weights (bf16), decay of what came before, new maximum, new
    total."""
    scores = tl.where(valid[None, :], scores * scale_log2, float("-inf"))
    new_max = tl.maximum(running_max, tl.max(scores, axis=1))
    # A head that has seen nothing yet keeps -inf: its weights must be 0, not exp(-inf + inf).
    shift = tl.where(new_max == float("-inf"), 0.0, new_max)
    p = tl.exp2(scores - shift[:, None])
    decay = tl.exp2(running_max - shift)
    return p.to(tl.bfloat16), decay, new_max, total * decay + tl.sum(p, axis=1)


@triton.jit
def sink_share(sink, running_max, total):
    """What an output sum is multiplied with: exp(max) / (Σ exp + exp(sink)), in base 2."""
    sink = sink * 1.4426950408889634
    top = tl.maximum(running_max, sink)
    weight = tl.exp2(running_max - top)
    return weight / (total * weight + tl.exp2(sink - top))
