"""Kernels run in Triton's interpreter where there is no CUDA device. That must be decided before
triton is imported.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

HAVE = {name: importlib.util.find_spec(name) is not None for name in ("torch", "triton")}
MISSING = [name for name, found in HAVE.items() if not found]

if not MISSING:
    import torch

    if not torch.cuda.is_available():
        if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
            raise pytest.UsageError(
                "triton was imported before tests/kernels could select its interpreter; "
                "set TRITON_INTERPRET=1 or import triton inside the test that needs it"
            )
        os.environ["TRITON_INTERPRET"] = "1"
    # Triton 3.9 warns unless this is chosen; fused multiply-add is what every release before did.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    # Tiny tensors: threads cost more than they bring, above all on a shared machine.
    torch.set_num_threads(1)


class _NeedsTorch(pytest.Module):
    """A test module that is not imported, because torch or triton is not there."""

    def collect(self):
        pytest.skip(
            f"{' and '.join(MISSING)} not installed: pip install 'v4sim[gpu]'", allow_module_level=True
        )


def pytest_pycollect_makemodule(module_path, parent):
    """Skip, with the reason, every module beside this file whose imports could not work."""
    if MISSING and module_path.parent == HERE:
        return _NeedsTorch.from_parent(parent, path=module_path)
    return None


@pytest.fixture
def device():
    """ "cuda" where there is one; otherwise the interpreter's CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def rng():
    """A generator with a fixed seed: every test draws the same numbers in any order."""
    return torch.Generator().manual_seed(20261130)
