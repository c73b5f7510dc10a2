"""Budgets too narrow for all verify windows: what vLLM shortens and leaves out, recorded, is what ours does.

No draft is accepted in these scripts (`oracle.narrow` says why).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent

# The step of the first difference, and why.
ACCEPTED = {
    "narrow-34": (30, "a call that has ended, unknown to the engine, is computed with its whole window"),
    "narrow-41": (71, "a call that decodes again after a shortened window holds pages as after a whole one"),
}


@pytest.fixture(scope="module")
def runs() -> Any:
    from oracle import log

    return log.read(HERE / "recorded" / "vllm_narrow.json.gz")[1]


def test_every_step_is_vllms(runs: Any) -> None:
    from oracle.compare import equal_steps

    from oracle import narrow, ours

    different = {}
    with narrow.never_accepted(ours):
        for script, theirs in runs:
            found = ours.World(script).run()
            if found != theirs:
                different[script.name] = equal_steps(found, theirs)
    assert different == {name: step for name, (step, _) in ACCEPTED.items()}


def test_the_scripts_are_narrow(runs: Any) -> None:
    """Nearly a thousand steps in which the window of somebody is shorter than the drafts that there are."""
    shortened = sum(
        any(1 < tokens <= script.options["draft_tokens"] for _, tokens in rows)
        for script, entries in runs
        for _, rows, *_ in entries
    )
    assert len(runs) >= 60
    assert shortened > 900


def test_blocks_of_steps_decide_what_single_steps_do(runs: Any) -> None:
    """Whether drafts are accepted or not."""
    from oracle import narrow, ours

    def decided(script: Any, stepwise: bool) -> list[Any]:
        entries = ours.World(script, stepwise=stepwise).run()
        return [(entry[3], entry[4]) for entry in entries if entry[3] or entry[4]]

    for script, _ in runs[::2]:
        assert decided(script, True) == decided(script, False), script.name
        with narrow.never_accepted(ours):
            assert decided(script, True) == decided(script, False), script.name
