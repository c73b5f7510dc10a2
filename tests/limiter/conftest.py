"""Small scenarios whose limiter is known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from v4sim import config
from v4sim.capacity import pools
from v4sim.cost import load_profile
from v4sim.model import spec
from v4sim.scenario import Scenario
from v4sim.workload import WorkloadOptions
from v4traces import CallRow, TraceTable

B200 = load_profile("b200")


def agents(
    sessions: int = 12, turns: int = 4, prompt: int = 3_000, growth: int = 700, output: int = 60
) -> list[CallRow]:
    """Sessions that grow, start together and hardly pause."""
    return [
        CallRow(
            session_id=f"s{number:02}",
            turn=turn,
            parent_session=f"s{number:02}" if turn else None,
            parent_turn=turn - 1 if turn else None,
            shared_tokens=prompt + growth * (turn - 1) if turn else 0,
            prompt_tokens=prompt + growth * turn,
            output_tokens=output + 7 * number,
            delay_s=0.01 * (1 + number % 3) if turn else 0.0,
            trigger="tool_result" if turn else "user",
        )
        for number in range(sessions)
        for turn in range(turns)
    ]


@pytest.fixture
def scenario(make_trace: Callable[[Sequence[CallRow]], TraceTable]) -> Callable[..., Scenario]:
    def make(
        rows: Sequence[CallRow] = (),
        sets: Sequence[str] = (),
        preset: str = "4xB200 V4-Flash DPA4+EP4 sglang",
        workload: WorkloadOptions | None = None,
        seed: int = 0,
    ) -> Scenario:
        deployed = config.resolve(config.load(preset, ["engine.cpu_cached_token_us=0.5", *sets]))
        held = pools(deployed, spec(deployed.model.name))
        load = workload or WorkloadOptions(sessions=12, window="0%:100%")
        return Scenario(make_trace(rows or agents()), deployed, B200, held, load, seed)

    return make
