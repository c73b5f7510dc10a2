"""What SGLang and vLLM decided, recorded, is what our schedulers and caches decide, step by step.

The decisions come from the engines' own code (`make oracle`); nothing of it is needed here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_our_decisions_are_the_engines(engine: str, accepted: dict[str, dict[str, dict[str, Any]]]) -> None:
    from oracle.compare import REASONS, equal_steps
    from oracle.ours import World

    from oracle import log

    _, runs = log.read(HERE / "recorded" / f"{engine}.json.gz")
    table = accepted[engine]
    assert {script.name for script, _ in runs} >= table.keys()
    assert len(runs) >= 200
    assert sum(len(theirs) for _, theirs in runs) >= 20_000
    different = {}
    for script, theirs in runs:
        ours = World(script).run()
        entry = table.get(script.name)
        if entry is None:
            if ours != theirs:
                different[script.name] = equal_steps(ours, theirs)
        else:
            same = equal_steps(ours, theirs)
            assert entry["reason"] in REASONS
            assert same >= entry["from"], f"{script.name} differs earlier than accepted"
            assert ours != theirs, f"{script.name} agrees by now: take it out of accepted.json"
    assert different == {}, "scripts whose decisions differ, with the number of equal steps"


def test_blocks_decide_what_single_steps_decide() -> None:
    """The same scripts with many decode steps at once: who entered, who left, in the same order."""
    from oracle.ours import World

    from oracle import log

    for engine in ("vllm", "sglang"):
        _, runs = log.read(HERE / "recorded" / f"{engine}.json.gz")
        # Evictions that a script asks for come at a step, of which a block knows nothing.
        undisturbed = [script for script, _ in runs if not script.options.get("evictions")]
        for script in undisturbed[::7]:
            decided = []
            for stepwise in (True, False):
                entries = World(script, stepwise=stepwise).run()
                decided.append(
                    [list(entry[3]) for entry in entries if entry[3]]
                    + [entry[4] for entry in entries if entry[4]]
                )
            assert decided[0] == decided[1], script.name
