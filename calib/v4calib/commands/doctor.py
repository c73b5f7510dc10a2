"""`v4calib doctor`: what this node can measure and why not the rest. Exit 1 where it can measure nothing."""

from __future__ import annotations

from v4calib.commands.options import AsJson, DeviceKind, Gpu, Models


def doctor(
    device: DeviceKind = "cuda", gpu: Gpu = None, models: Models = None, as_json: AsJson = False
) -> int:
    """Say what this node can measure, and what is missing for the rest."""
    import json

    from v4calib.commands.options import models_of
    from v4calib.doctor import examine

    found = examine(device, gpu, models_of(models))
    if as_json:
        print(json.dumps([{s: getattr(f, s) for s in f.__slots__} for f in found], indent=1))
    else:
        for f in found:
            mark = {True: "ok", False: "no", None: "--"}[f.ok]
            print(f"{mark}  {f.name:<20}{f.words}")
    return 0 if all(f.ok is not False for f in found if f.name == "device") else 1
