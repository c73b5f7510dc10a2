"""`python -m oracle.record ENGINE ARCHIVE FOLDER [SEED]`: scripts through an engine, its decisions to a file.

With another seed Hypothesis draws other scripts: for looking further than what is recorded.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from typing import Any

from oracle import drawn, generate, log, weka
from oracle.script import Script

PER_KIND = 17
DRAWN = 200


def main(engine: str, archive: str, folder: str, seed: str = str(drawn.SEED)) -> None:
    # Drawn first: Hypothesis takes constants from the modules that are loaded, and draws by them.
    scripts = generate.scripts(engine, PER_KIND) + drawn.scripts(engine, DRAWN, int(seed))
    if Path(archive).is_file():
        scripts += weka.scripts(Path(archive), engine) + weka.whole(Path(archive), engine)
    importlib.import_module("oracle.absent")  # before anything of an engine
    driver = importlib.import_module(f"oracle.{engine}_driver")
    begin = time.monotonic()
    runs = [(script, _loop(engine, script).run()) for script in scripts]
    path = Path(folder) / f"{engine}.json.gz"
    log.write(path, engine, driver.VERSION, runs)
    steps = sum(len(entries) for _, entries in runs)
    print(
        f"{engine} {driver.VERSION}: {len(runs)} scripts, {steps} steps in {time.monotonic() - begin:.0f} s, "
        f"{path.stat().st_size / 1e3:.0f} kB"
    )


def _loop(engine: str, script: Script) -> Any:
    ranks = engine == "sglang" and "ranks" in script.options
    return importlib.import_module("oracle.sglang_ranks" if ranks else f"oracle.{engine}_driver").Loop(script)


if __name__ == "__main__":
    main(*sys.argv[1:])
