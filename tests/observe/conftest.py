"""A deployment with known constants, what it does with a trace, and the logs it would have written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from v4sim import simulate
from v4sim.config import Deployment, resolve
from v4sim.cost import compile_cost, load_profile
from v4sim.cost.base import StepCost
from v4sim.metrics.calls import Calls
from v4sim.model import spec
from v4sim.observe.formats import written
from v4sim.observe.formats.base import Told
from v4sim.workload import WorkloadOptions
from v4traces import CallRow, TraceTable
from v4traces.rows import Phase

CostOf = Callable[[Deployment], StepCost]


@pytest.fixture(scope="session")
def rows() -> list[CallRow]:
    """48 sessions of three turns with prompts of 2K to 60K tokens, far enough apart to queue little."""
    rng = np.random.default_rng(7)
    rows: list[CallRow] = []
    for s in range(48):
        prompt = int(rng.integers(2_000, 40_000))
        for turn in range(3):
            output = int(rng.integers(60, 140))
            link: dict[str, Any] = {"arrival_s": 4.0 * s}
            if turn:
                link = {"parent_session": f"s{s}", "parent_turn": turn - 1, "delay_s": 0.3}
                link["shared_tokens"] = rows[-1].prompt_tokens
            kinds = ("reasoning", "code") if s % 2 else ("code", "prose")
            half = output // 2
            phases = (Phase(kinds[turn % 2], half), Phase(kinds[1 - turn % 2], output - half))
            rows.append(
                CallRow(
                    session_id=f"s{s}",
                    turn=turn,
                    prompt_tokens=prompt,
                    output_tokens=output,
                    max_output_tokens=output,
                    phases=phases,
                    **link,
                )
            )
            prompt += int(rng.integers(500, 9_000))
    return rows


@pytest.fixture(scope="session")
def trace(rows: list[CallRow], make_trace: Callable[[Sequence[CallRow]], TraceTable]) -> TraceTable:
    return make_trace(rows)


@pytest.fixture(scope="session")
def cost_of() -> CostOf:
    profile = load_profile("b200")
    return lambda deployment: compile_cost(profile, deployment, spec(deployment.model.name))


@pytest.fixture(scope="session")
def deployed() -> Callable[..., Deployment]:
    """4 B200, attention TP4; the engine's own constants unless given."""

    def make(engine: str = "sglang", drafts: int = 0, acceptance: str = "auto", **options: Any) -> Deployment:
        speculation = {"kind": "mtp" if drafts else "off", "draft_tokens": drafts, "acceptance": acceptance}
        return resolve(
            Deployment.model_validate(
                {
                    "hardware": {"gpu": "b200", "num_gpus": 4},
                    "parallel": {"attention_tp": 4, "attention_dp": 1, "ep": 1},
                    "engine": {"kind": engine, **options},
                    "speculation": speculation,
                }
            )
        )

    return make


@pytest.fixture(scope="session")
def told(trace: TraceTable, cost_of: CostOf) -> Callable[..., list[Told]]:
    """The calls of a run, as an engine would know them."""

    def make(deployment: Deployment, seed: int = 1) -> list[Told]:
        result = simulate.run(
            trace, deployment, cost_of(deployment), WorkloadOptions(arrivals="trace"), seed=seed
        )
        calls = Calls.of(result.calls)
        names = [name for name in Told.__slots__ if name != "session"]
        columns = {name: calls[name].tolist() for name in names}
        sessions = [trace.session_names[s] for s in calls["session"].tolist()]
        return [
            Told(session=sessions[i], **{name: columns[name][i] for name in names}) for i in range(len(calls))
        ]

    return make


@pytest.fixture
def log_of(tmp_path: Path) -> Callable[[Sequence[Told], str], Path]:
    def make(calls: Sequence[Told], form: str) -> Path:
        path = tmp_path / f"{form}.jsonl"
        path.write_text(written(calls, form), encoding="utf-8")
        return path

    return make
