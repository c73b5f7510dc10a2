"""`python -m oracle.record_v4 FOLDER`: V4's cache groups in vLLM, and the simulator's adapter beside them.

Every script goes through vLLM's scheduler with real tokens (`vllm_v4_driver`) and through the adapter of
`engine.scheduler = vllm-native`; they must decide alike, step by step. Recorded are the groups that vLLM
made of V4's layers and the hit of every call.
"""

from __future__ import annotations

import importlib
import sys
import time
from dataclasses import replace
from pathlib import Path

from oracle import log, sessions
from oracle.script import SCHEMA, Script

PER_KIND = 24
CROWDED = 40


def main(folder: str) -> int:
    importlib.import_module("oracle.absent")  # before anything of an engine
    driver = importlib.import_module("oracle.vllm_v4_driver")
    driver.V4Loop.model()
    native = importlib.import_module("oracle.native")
    begin = time.monotonic()
    runs, unlike, steps = [], [], 0
    for script in [*sessions.scripts(PER_KIND), *sessions.crowded(CROWDED)]:
        loop = driver.V4Loop(script)
        theirs = [entry[:2] + entry[3:] for entry in loop.run()]
        adapted = [entry[:2] + entry[3:] for entry in native.NativeWorld(script).run()]
        steps += len(theirs)
        if adapted != theirs:
            unlike.append(script.name)
        if script.kind != "crowded":
            hits = [pair for entry in theirs for pair in entry[2]]
            runs.append({"script": script.dump(), "hits": hits})
    data = {
        "schema_version": SCHEMA,
        "engine": "vllm",
        "version": driver.VERSION,
        "model": native.MODEL,
        "groups": {dtype: driver.V4Loop(_small(dtype)).groups for dtype in ("fp8", "fp4")},
        "runs": runs,
    }
    path = Path(folder) / "vllm_v4.json.gz"
    log.save(path, data)
    print(
        f"vllm {driver.VERSION}, cache groups of {native.MODEL}: {len(runs)} scripts recorded, "
        f"{path.stat().st_size / 1e3:.0f} kB; the adapter decides like vLLM in "
        f"{len(runs) + CROWDED - len(unlike)} of {len(runs) + CROWDED} scripts, {steps} steps, "
        f"{time.monotonic() - begin:.0f} s"
    )
    if unlike:
        print(f"unlike: {', '.join(unlike)}")
    return 1 if unlike else 0


def _small(index_dtype: str) -> Script:
    script = sessions.scripts(1)[0]
    return replace(script, options=script.options | {"index_dtype": index_dtype})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
