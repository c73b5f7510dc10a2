"""`v4calib verify`: every kernel against its reference on this device; exit 1 where one is wrong."""

from __future__ import annotations

from v4calib.commands.options import AsJson, Full, Gpu, Models, Ops, Quick


def verify(
    ops: Ops = None,
    models: Models = None,
    quick: Quick = False,
    full: Full = False,
    gpu: Gpu = None,
    as_json: AsJson = False,
) -> int:
    """Compare every kernel with its reference on this GPU; nothing is timed."""
    import json

    from v4calib.commands.options import grid_name, models_of
    from v4calib.devices import open_device
    from v4calib.grid import grid
    from v4calib.plan import jobs_for
    from v4calib.verify import verify as verdicts

    axes = grid(grid_name(quick, full, "cuda"))
    jobs = jobs_for(ops or [], models_of(models), axes)
    device = open_device("cuda", gpu)
    found = []
    try:
        for v in verdicts(device, jobs):
            found.append(v)
            if not as_json:
                mark = {True: "ok", False: "WRONG", None: "--"}[v.ok]
                print(
                    f"{mark:<6}{v.operation:<20}{v.configuration}{': ' if v.words else ''}{v.words}",
                    flush=True,
                )
    finally:
        device.close()
    if as_json:
        print(json.dumps([{s: getattr(v, s) for s in v.__slots__} for v in found], indent=1))
    return 1 if any(v.ok is False for v in found) else 0
