"""What launchers demand of their tensors. A launcher's mistake is a programmer's, hence a ValueError."""

from __future__ import annotations

import os

import torch
import triton
from torch import Tensor


class KernelInputError(ValueError):
    """A tensor does not have the dtype, shape, device or contiguity that the kernel was compiled for."""


def require(tensor: Tensor, name: str, dtype: torch.dtype, shape: tuple[int | None, ...]) -> None:
    """`tensor` is contiguous, of `dtype`, with `shape` (None: any length)."""
    if tensor.dtype is not dtype:
        raise KernelInputError(f"{name} is {tensor.dtype}, must be {dtype}; convert it before the launch")
    fits = len(shape) == tensor.dim() and all(
        s is None or s == t for s, t in zip(shape, tensor.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if s is None else str(s) for s in shape)
        raise KernelInputError(f"{name} has shape {tuple(tensor.shape)}, must be ({wanted})")
    if not tensor.is_contiguous():
        raise KernelInputError(
            f"{name} has strides {tensor.stride()}, must be contiguous; call .contiguous()"
        )


def choose(value: object, name: str, allowed: tuple[object, ...]) -> None:
    """`value` is one of `allowed`."""
    if value not in allowed:
        raise KernelInputError(f"{name} is {value!r}, must be one of {', '.join(map(str, allowed))}")


def interpreted() -> bool:
    """True where Triton's interpreter runs the kernels (on CPU tensors)."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def triton_release() -> tuple[int, int]:
    """The installed Triton, as (3, 9)."""
    major, minor = triton.__version__.split(".")[:2]
    return int(major), int(minor)


def num_sms(device: torch.device) -> int:
    """Multiprocessors to fill; 2 in the interpreter, where splitting only costs time."""
    if device.type != "cuda":
        return 2
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def capability(device: torch.device) -> int:
    """Compute capability as 90 or 100; the interpreter stands in for sm_100, which has every path."""
    if device.type != "cuda":
        return 100
    major, minor = torch.cuda.get_device_capability(device)
    return int(major * 10 + minor)
