"""`python -m oracle.record_narrow FOLDER`: what vLLM does where verify windows do not fit its budget."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from oracle import log, narrow

COUNT = 60


def main(folder: str) -> int:
    importlib.import_module("oracle.absent")  # before anything of an engine
    driver = importlib.import_module("oracle.vllm_driver")
    path = Path(folder) / "vllm_narrow.json.gz"
    with narrow.never_accepted(driver):
        runs = [(script, driver.Loop(script).run()) for script in narrow.scripts(COUNT)]
    log.write(path, "vllm", driver.VERSION, runs)
    cut = sum(_cuts(script.options["draft_tokens"], entries) for script, entries in runs)
    steps = sum(len(entries) for _, entries in runs)
    print(f"vllm {driver.VERSION}, narrow budgets: {COUNT} scripts, {steps} steps, {cut} with a cut window")
    return 0


def _cuts(drafts: int, entries: list[log.Entry]) -> int:
    return sum(any(1 < tokens <= drafts for _, tokens in rows) for _, rows, *_ in entries)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
