"""`python -m oracle.report FOLDER`: equal and different per kind of script; proposes `accepted.json`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from oracle import log
from oracle.compare import classify, equal_steps
from oracle.ours import World


def main(folder: str) -> None:
    table: dict[str, dict[str, Any]] = {}
    for engine in ("vllm", "sglang"):
        version, runs = log.read(Path(folder) / f"{engine}.json.gz")
        print(f"{engine} {version}")
        scripts: Counter[str] = Counter()
        same: Counter[str] = Counter()
        steps: Counter[str] = Counter()
        equal: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        table[engine] = {}
        for script, theirs in runs:
            ours = World(script).run()
            kind = script.kind
            scripts[kind] += 1
            steps[kind] += len(theirs)
            equal[kind] += equal_steps(ours, theirs)
            if ours == theirs:
                same[kind] += 1
                continue
            reason = classify(script, ours, theirs)
            reasons[reason] += 1
            table[engine][script.name] = {"from": equal_steps(ours, theirs), "reason": reason}
        for kind in scripts:
            print(f"  {kind:18} {same[kind]:4}/{scripts[kind]} scripts  {equal[kind]:6}/{steps[kind]} steps")
        every = f"{same.total():4}/{scripts.total()} scripts  {equal.total():6}/{steps.total()} steps"
        print(f"  {'all':18} {every}")
        for reason, count in sorted(reasons.items()):
            print(f"  {reason}: {count} scripts")
    (Path(folder).parent / "accepted.proposed.json").write_text(
        json.dumps(table, indent=1, sort_keys=True) + "\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
