"""`v4calib plan`: points and minutes of a run, on any machine; nothing is measured."""

from __future__ import annotations

from v4calib.commands.options import AsJson, DeviceKind, Full, Gpu, Models, Ops, Quick


def plan(
    ops: Ops = None,
    models: Models = None,
    quick: Quick = False,
    full: Full = False,
    device: DeviceKind = "cuda",
    gpu: Gpu = None,
    as_json: AsJson = False,
) -> None:
    """List what a run will measure, with points and estimated minutes."""
    import json

    from v4calib.commands.options import grid_name, models_of
    from v4calib.grid import grid
    from v4calib.plan import described, jobs_for, minutes
    from v4calib.plan import plan as planned

    axes = grid(grid_name(quick, full, device))
    facts = described(gpu or "b200", device)
    rows = planned(jobs_for(ops or [], models_of(models), axes), axes, facts)
    total = minutes(rows)
    if as_json:
        operations = [{s: getattr(r, s) for s in r.__slots__} for r in rows]
        print(
            json.dumps(
                {"grid": axes.name, "gpu": facts.gpu, "minutes": total, "operations": operations}, indent=1
            )
        )
        return
    print(
        f"{axes.name} grid on {facts.name}: {sum(r.points for r in rows)} points, about {total:.0f} minutes"
    )
    for r in rows:
        note = f"; {r.refused} points not: {r.reason}" if r.refused else ""
        print(
            f"  {r.operation:<20}{r.points:>5} points ({r.held_out} held out){r.seconds / 60:>7.1f} min"
            f"  {r.about}{note}"
        )
