"""Number formats of the V4 cache and experts: e2m1, e4m3 and ue8m0 block scales, in torch.

A block of values is stored as `value / 2**e` in the small format with one power-of-two scale. `e` is the
smallest exponent for which the largest magnitude of the block still fits, found from the fp32 bits so that
the Triton kernels get the same byte: with |x| = m·2^p, m in [1, 2), and a format maximum M·2^q, e = p - q
+ (m > M). Bytes: ue8m0 byte b is 2**(b - 127); here 1 <= b <= 254, since some Triton releases decode byte
0 as zero. Two e2m1 values share a byte, the even element in the low nibble. NaN and infinity are not
represented.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

E4M3_MAX = 448.0  # 1.75 · 2^8
E2M1_MAX = 6.0  # 1.5 · 2^2
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """Where the maximum of an element format lies, as the scale rule needs it."""

    max_exponent: int
    max_mantissa_bits: int
    """The fraction of the maximum, as the 23 bits of an fp32."""


E4M3 = BlockFormat(8, 0x600000)
E2M1 = BlockFormat(2, 0x400000)


def ue8m0_byte(amax: Tensor, element: BlockFormat) -> Tensor:
    """Scale byte for blocks whose largest magnitude is `amax` (fp32, >= 0)."""
    bits = amax.to(torch.float32).contiguous().view(torch.int32)
    exponent = bits >> 23
    above = (bits & 0x7FFFFF) > element.max_mantissa_bits
    return (exponent - element.max_exponent + above.to(torch.int32)).clamp(1, 254).to(torch.uint8)


def ue8m0_value(byte: Tensor) -> Tensor:
    """2**(byte - 127) as fp32, exact."""
    return (byte.to(torch.int32) << 23).view(torch.float32)


def block_amax(x: Tensor, block: int) -> Tensor:
    """Largest magnitude per `block` consecutive elements of the last axis."""
    return x.float().abs().unflatten(-1, (-1, block)).amax(-1)


def to_e4m3(x: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """(e4m3 bytes as uint8, ue8m0 bytes) of `x` [..., n] with one scale per `block`."""
    scale = ue8m0_byte(block_amax(x, block), E4M3)
    scaled = x.float().unflatten(-1, (-1, block)) / ue8m0_value(scale).unsqueeze(-1)
    return scaled.flatten(-2).to(torch.float8_e4m3fn).view(torch.uint8), scale


def from_e4m3(data: Tensor, scale: Tensor) -> Tensor:
    """fp32 values of `to_e4m3`; exact."""
    values = data.view(torch.float8_e4m3fn).float().unflatten(-1, (scale.shape[-1], -1))
    return (values * ue8m0_value(scale).unsqueeze(-1)).flatten(-2)


def e2m1_codes(x: Tensor) -> Tensor:
    """Nearest e2m1 code (0..15) of each value in [-6, 6]; ties go to the even code, as the hardware
    rounds.
    """
    magnitude = x.float().abs()
    code = torch.zeros_like(magnitude, dtype=torch.int32)
    for index in range(1, len(E2M1_VALUES)):
        middle = (E2M1_VALUES[index - 1] + E2M1_VALUES[index]) / 2
        # A tie at the middle belongs to the even one of the two codes.
        reached = magnitude >= middle if index % 2 == 0 else magnitude > middle
        code = torch.where(reached, index, code)
    # -0.0 keeps its sign, as the hardware conversion does.
    return (code | (torch.signbit(x).to(torch.int32) << 3)).to(torch.uint8)


def e2m1_decode(code: Tensor) -> Tensor:
    """fp32 value of each 4-bit code."""
    table = torch.tensor([*E2M1_VALUES, *(-v for v in E2M1_VALUES)], device=code.device)
    return table[code.long()]


def pack_nibbles(codes: Tensor) -> Tensor:
    """[..., n] codes to [..., n / 2] bytes, even element low."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_nibbles(packed: Tensor) -> Tensor:
    """[..., n] bytes to [..., 2n] codes."""
    return torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2)


def to_mxfp4(x: Tensor, block: int = 32) -> tuple[Tensor, Tensor]:
    """(packed e2m1 [..., n / 2], ue8m0 bytes [..., n / block])."""
    scale = ue8m0_byte(block_amax(x, block), E2M1)
    scaled = x.float().unflatten(-1, (-1, block)) / ue8m0_value(scale).unsqueeze(-1)
    return pack_nibbles(e2m1_codes(scaled.flatten(-2))), scale


def from_mxfp4(packed: Tensor, scale: Tensor) -> Tensor:
    """fp32 values of `to_mxfp4`; exact."""
    values = e2m1_decode(unpack_nibbles(packed)).unflatten(-1, (scale.shape[-1], -1))
    return (values * ue8m0_value(scale).unsqueeze(-1)).flatten(-2)


def to_nvfp4(x: Tensor, block: int = 16) -> tuple[Tensor, Tensor]:
    """(packed e2m1, e4m3 scale bytes): V4.1's main entry, one e4m3 scale per 16 values.

    The scale is amax / 6 rounded to e4m3 (at least its smallest subnormal, 2^-9, for a block that is not
    zero). Rounding down can leave a value slightly above 6, which then saturates.
    """
    amax = block_amax(x, block)
    scale = (amax * (1.0 / E2M1_MAX)).clamp(2.0**-9, E4M3_MAX).to(torch.float8_e4m3fn)
    scaled = x.float().unflatten(-1, (-1, block)) / scale.float().unsqueeze(-1)
    codes = e2m1_codes(scaled.flatten(-2).clamp(-E2M1_MAX, E2M1_MAX))
    return pack_nibbles(codes), scale.view(torch.uint8)


def from_nvfp4(packed: Tensor, scale: Tensor) -> Tensor:
    """fp32 values of `to_nvfp4`; exact."""
    values = e2m1_decode(unpack_nibbles(packed)).unflatten(-1, (scale.shape[-1], -1))
    return (values * scale.view(torch.float8_e4m3fn).float().unsqueeze(-1)).flatten(-2)
