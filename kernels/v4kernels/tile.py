"""Small device functions shared by kernels.

Triton's interpreter keeps bf16 as raw 16-bit integers and its `tl.dot` multiplies those, so bf16 products go
through `dot_bf16`, which widens the operands there (exact: a product of two bf16 fits fp32) and is a plain
`tl.dot` when compiled. Its cast to e4m3 drops the carry into the exponent (0.996 becomes 0.5), so
`to_e4m3` puts values on the e4m3 grid first there.
"""

from __future__ import annotations

import triton
import triton.language as tl

from v4kernels import checks

INTERPRETED = tl.constexpr(checks.interpreted())


@triton.jit
def dot_bf16(a, b, acc):
    """acc + a·b in fp32, for bf16 tiles."""
    if INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc)
    else:
        return tl.dot(a, b, acc)


@triton.jit
def to_e4m3(x):
    """Nearest e4m3 of fp32 within its range, ties to even."""
    if INTERPRETED:
        exponent = tl.maximum((x.to(tl.int32, bitcast=True) >> 23) & 255, 121)
        # Adding 1.5 · 2^23 leaves an integer number of steps, rounded to even.
        steps = (x * power_of_two(257 - exponent) + 12582912.0) - 12582912.0
        x = steps * power_of_two(exponent - 3)
    return x.to(tl.float8e4nv)


@triton.jit
def e4m3_scale_byte(amax):
    """ue8m0 byte for a block whose largest magnitude is `amax`; the rule of `quant.ue8m0_byte`."""
    bits = amax.to(tl.int32, bitcast=True)
    byte = (bits >> 23) - 8 + ((bits & 0x7FFFFF) > 0x600000).to(tl.int32)
    return tl.minimum(tl.maximum(byte, 1), 254)


@triton.jit
def e2m1_scale_byte(amax):
    """ue8m0 byte for MXFP4."""
    bits = amax.to(tl.int32, bitcast=True)
    byte = (bits >> 23) - 2 + ((bits & 0x7FFFFF) > 0x400000).to(tl.int32)
    return tl.minimum(tl.maximum(byte, 1), 254)


@triton.jit
def power_of_two(byte):
    """2**(byte - 127) as fp32."""
    return (byte.to(tl.int32) << 23).to(tl.float32, bitcast=True)


@triton.jit
def e2m1_code(x):
    """Nearest e2m1 code of fp32 in [-6, 6], ties to even, as int32."""
    m = tl.abs(x)
    code = (
        (m > 0.25).to(tl.int32)
        + (m >= 0.75).to(tl.int32)
        + (m > 1.25).to(tl.int32)
        + (m >= 1.75).to(tl.int32)
        + (m > 2.5).to(tl.int32)
        + (m >= 3.5).to(tl.int32)
        + (m > 5.0).to(tl.int32)
    )
    sign = (x.to(tl.int32, bitcast=True) >> 28) & 8
    return code | sign
