"""Known constants come back from logs that a run with them wrote, in every format."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from v4sim.config import Deployment
from v4sim.cost.base import StepCost
from v4sim.observe import Constant, Fit, compare, fit, join, read_logs
from v4sim.observe.formats.base import Told
from v4sim.observe.formats.vllm import VLLM
from v4traces import TraceTable

CostOf = Callable[[Deployment], StepCost]
Deploy = Callable[..., Deployment]
Tell = Callable[..., list[Told]]
LogOf = Callable[[Sequence[Told], str], Path]
KNOWN = {"cpu_step_us": 9_000.0, "cpu_cached_token_us": 1.7, "cpu_request_us": 24_000.0}


def constants(found: Fit) -> dict[str, Constant]:
    return {constant.name: constant for constant in found.constants}


@pytest.mark.parametrize("form", ["sglang", "vllm", "aiperf", "dynamo"])
def test_known_constants_are_recovered(
    form: str, trace: TraceTable, deployed: Deploy, told: Tell, log_of: LogOf, cost_of: CostOf
) -> None:
    engine = "vllm" if form == "vllm" else "sglang"
    log = read_logs([log_of(told(deployed(engine, **KNOWN)), form)])
    assert log.formats == (form,)
    found = fit(join(trace, log.seen), deployed(engine), cost_of)
    for name, constant in constants(found).items():
        assert constant.fitted
        assert constant.value == pytest.approx(KNOWN[name], rel=0.05), name


def test_a_step_that_does_not_overlap_is_recovered_too(
    trace: TraceTable, deployed: Deploy, told: Tell, log_of: LogOf, cost_of: CostOf
) -> None:
    log = read_logs([log_of(told(deployed(overlap=False, cpu_step_us=1_200.0)), "sglang")])
    found = fit(join(trace, log.seen), deployed(overlap=False), cost_of)
    assert constants(found)["cpu_step_us"].value == pytest.approx(1_200.0, rel=0.05)


def test_a_step_that_the_gpu_hides_is_not_made_up(
    trace: TraceTable, deployed: Deploy, told: Tell, log_of: LogOf, cost_of: CostOf
) -> None:
    log = read_logs([log_of(told(deployed(cpu_step_us=500.0)), "aiperf")])
    step = constants(fit(join(trace, log.seen), deployed(), cost_of))["cpu_step_us"]
    assert not step.fitted
    assert step.value == 2_750.0
    assert "hidden" in step.why


def test_the_front_end_is_not_seen_where_the_client_did_not_time_it(
    trace: TraceTable, deployed: Deploy, told: Tell, tmp_path: Path, cost_of: CostOf
) -> None:
    lines = [VLLM.write(call) for call in told(deployed("vllm", **KNOWN))]
    path = tmp_path / "responses.jsonl"
    path.write_text("".join(json.dumps({**line, "latency_s": None}) + "\n" for line in lines))
    found = constants(fit(join(trace, read_logs([path]).seen), deployed("vllm"), cost_of))
    assert found["cpu_step_us"].value == pytest.approx(KNOWN["cpu_step_us"], rel=0.05)
    assert not found["cpu_request_us"].fitted
    assert "0 calls" in found["cpu_request_us"].why


def test_prompts_of_one_length_do_not_split_request_and_token(
    trace: TraceTable, deployed: Deploy, told: Tell, log_of: LogOf, cost_of: CostOf
) -> None:
    joined = join(trace, read_logs([log_of(told(deployed()), "aiperf")]).seen)
    flat = replace(joined.table, prompt_tokens=joined.table.prompt_tokens * 0 + 60_000)
    found = constants(fit(replace(joined, table=flat), deployed(), cost_of))
    assert not found["cpu_request_us"].fitted
    assert "one length" in found["cpu_request_us"].why


def test_acceptance_comes_back_overall_and_by_phase(
    trace: TraceTable, deployed: Deploy, told: Tell, log_of: LogOf, cost_of: CostOf
) -> None:
    calls = told(deployed(drafts=3))
    found = fit(join(trace, read_logs([log_of(calls, "sglang")]).seen), deployed(drafts=3), cost_of)
    assert found.acceptance is not None
    steps, tokens = sum(c.verify_steps for c in calls), sum(c.output_tokens - 1 for c in calls)
    assert found.acceptance.length == pytest.approx(tokens / steps, rel=1e-9)
    by_phase = {phase: length for phase, (length, _) in found.acceptance.by_phase.items()}
    # Published: 2.49 tokens a step with thinking, 2.97 without; a few thousand tokens give them roughly.
    assert by_phase["reasoning"] == pytest.approx(2.49, rel=0.08)
    assert by_phase["code"] == pytest.approx(2.97, rel=0.08)
    assert found.deployment.speculation.acceptance.startswith("constant:")


def test_the_fitted_prediction_is_what_was_seen(
    trace: TraceTable, deployed: Deploy, told: Tell, log_of: LogOf, cost_of: CostOf
) -> None:
    joined = join(trace, read_logs([log_of(told(deployed(**KNOWN)), "sglang")]).seen)
    comparison = compare(joined, fit(joined, deployed(), cost_of), ("sglang",))
    rows = {row.name: row for row in comparison.rows}
    for name in ("ttft_ms p50", "tpot_ms p50", "e2e_ms p95"):
        row = rows[name]
        assert abs(row.error(row.after) or 0.0) < 0.02
        assert abs(row.error(row.after) or 0.0) < abs(row.error(row.before) or 0.0)
    assert rows["hit ratio"].after == pytest.approx(rows["hit ratio"].seen, rel=0.02)
