"""The operations that `v4calib run` can measure, by name."""

from __future__ import annotations

from v4calib.errors import CalibError
from v4calib.operations.attention import HcaDecode, HcaPrefill, SparseAttention
from v4calib.operations.base import LaunchedOperation, MeasuredOperation, TorchCase, copies_for
from v4calib.operations.candidates import CandidatePool, CandidateScan
from v4calib.operations.ceilings import Copy, EmptyLaunch, MatrixProduct
from v4calib.operations.collectives import Collective
from v4calib.operations.compressor import Compressor
from v4calib.operations.dense import LmHead, MtpProjection, Projections, SharedExpert
from v4calib.operations.experts import RoutedExperts
from v4calib.operations.index_scan import IndexScan, IndexScanPrefill
from v4calib.operations.links import HostLink
from v4calib.operations.mhc import Mhc
from v4calib.operations.norm_rope import NormRope
from v4calib.operations.selection import Gather, Translate
from v4calib.operations.topk import TopK, TopKPrefill

__all__ = [
    "OPERATIONS",
    "LaunchedOperation",
    "MeasuredOperation",
    "TorchCase",
    "copies_for",
    "operation",
    "select",
]

_ALL: tuple[MeasuredOperation, ...] = (
    Copy(),
    MatrixProduct(),
    EmptyLaunch(),
    IndexScan(),
    IndexScanPrefill(),
    TopK(),
    TopKPrefill(),
    CandidatePool(),
    CandidateScan(),
    Translate(),
    Gather(),
    SparseAttention(),
    HcaDecode(),
    HcaPrefill(),
    Compressor(),
    Projections(),
    NormRope(),
    SharedExpert(),
    LmHead(),
    MtpProjection(),
    RoutedExperts(),
    Mhc(),
    HostLink(),
    Collective(),
)
OPERATIONS: dict[str, MeasuredOperation] = {op.name: op for op in _ALL}


def operation(name: str) -> MeasuredOperation:
    """The operation of that name."""
    try:
        return OPERATIONS[name]
    except KeyError:
        raise CalibError(
            f"--ops {name}: there is no such operation; choose from {', '.join(OPERATIONS)}."
        ) from None


def select(names: list[str]) -> list[MeasuredOperation]:
    """The operations of these names in the order of the registry; all for none."""
    wanted = {operation(name.strip()).name for text in names for name in text.split(",") if name.strip()}
    return [op for op in _ALL if not wanted or op.name in wanted]
