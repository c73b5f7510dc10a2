"""A reference profile with measured operations in the place of published ones.

Every operation keeps its own provenance. The four prefill tables of a model are read together and must
stand on one grid, so where measured and published ones meet they are put on the union of their points
inside the domain they share: bilinear tables lose nothing by that, and nothing is extrapolated. Rows that
were timed on a CPU do not go into a profile of a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from v4calib.errors import CalibError
from v4sim.cost.operation import Axis, Operation
from v4sim.cost.profile import Profile
from v4sim.cost.tables import Grids

_TOGETHER = ("csa_prefill", "hca_prefill", "index_scan_prefill", "topk_prefill")


def merge(
    base: Profile, measured: Profile, *, without: Sequence[str] = (), stand_in: bool = False
) -> Profile:
    """`base` with the operations of `measured`, but for families in `without`."""
    cpu = [k for k, v in measured.provenances.items() if (v.gpu or "").startswith("CPU")]
    if cpu and not stand_in:
        raise CalibError(
            f"Profile {measured.name!r} was timed on a CPU ({cpu[0]}): it proves the chain and says nothing "
            f"about {base.gpu}. Measure on a GPU with `v4calib run`."
        )
    families = {name.split(".", 1)[0] for name in measured.operations}
    unknown = [family for family in without if family not in families]
    if unknown:
        raise CalibError(
            f"--except {unknown[0]}: profile {measured.name!r} has no such family; it has "
            f"{', '.join(sorted(families))}."
        )
    chosen = {
        name: operation
        for name, operation in measured.operations.items()
        if name.split(".", 1)[0] not in without
    }
    merged = base.merged(replace(measured, operations=chosen))
    used = {operation.provenance for operation in merged.operations.values()}
    return replace(
        merged,
        name=measured.name if stand_in else merged.name,
        description=f"{measured.description} The rest: {base.description}",
        generator=f"{measured.generator}, over {base.name}",
        operations=_on_one_grid(merged.operations),
        provenances={k: v for k, v in merged.provenances.items() if k in used},
    )


def measured_part(profile: Profile) -> Profile:
    """Only what was measured: published operations of a completed profile override nothing."""
    measured = {k: v for k, v in profile.operations.items() if profile.provenance_of(v).kind == "measured"}
    if not measured:
        raise CalibError(
            f"Profile {profile.name!r} holds nothing that was measured: there is nothing to put over another "
            "one."
        )
    used = {v.provenance for v in measured.values()}
    provenances = {k: v for k, v in profile.provenances.items() if k in used}
    return replace(profile, operations=measured, provenances=provenances)


def _on_one_grid(operations: Mapping[str, Operation]) -> dict[str, Operation]:
    """Prefill tables of each model on one grid."""
    out = dict(operations)
    models = sorted({_model(name) for name in out if name.split(".", 1)[0] in _TOGETHER})
    for model in models:
        names = [n for n in out if n.split(".", 1)[0] in _TOGETHER and _model(n) == model]
        grids = {tuple(a.points for a in out[n].axes) for n in names}
        if len(grids) < 2:
            continue
        axes = [_shared([grid[i] for grid in sorted(grids)]) for i in range(2)]
        for name in names:
            out[name] = _resampled(out[name], axes)
    return out


def _model(name: str) -> str:
    """`csa_prefill.sglang.v4.1-flash.tp4` and `index_scan_prefill.vllm.v4.1-flash` are of v4.1-flash."""
    family, rest = name.split(".", 1)
    if family in ("csa_prefill", "hca_prefill"):
        return rest.split(".", 1)[1].rsplit(".tp", 1)[0]
    return rest.removeprefix("vllm.")


def _shared(points: Sequence[Sequence[float]]) -> tuple[float, ...]:
    low, high = max(p[0] for p in points), min(p[-1] for p in points)
    inside = sorted({x for p in points for x in p if low <= x <= high})
    if len(inside) < 2:
        raise CalibError(
            f"Measured and published prefill tables share no range of tokens ({low:g} to {high:g}): measure "
            "a larger grid, or leave the prefill families out with --except."
        )
    return tuple(inside)


def _resampled(operation: Operation, axes: Sequence[tuple[float, ...]]) -> Operation:
    grid = Grids(operation.axes[0].points, operation.axes[1].points, [operation.rows()])
    values = tuple(tuple(max(grid.at(x, y)[0], 0.0) for y in axes[1]) for x in axes[0])
    named = tuple(Axis(old.name, points) for old, points in zip(operation.axes, axes, strict=True))
    return replace(operation, axes=named, values=values)
