"""Law 12 continued: closed loops (machine repairman), batches (processor sharing), batch occupancy."""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from typing import Any

import numpy as np
import pytest

from v4sim.cost.base import ConstantCost
from v4sim.results import RunResult
from v4sim.workload import WorkloadOptions
from v4traces import CallRow

Simulate = Callable[..., RunResult]


def sessions(turns: int, delays_s: np.ndarray, tokens: np.ndarray) -> list[CallRow]:
    """One session per row of `delays_s`: think, then a call of `tokens`, over and over."""
    return [
        CallRow(
            session_id=f"s{s}",
            turn=t,
            prompt_tokens=int(tokens[s, t]),
            output_tokens=1,
            delay_s=float(delays_s[s, t]),
        )
        for s in range(len(delays_s))
        for t in range(turns)
    ]


ONE_SERVER: dict[str, Any] = {
    "sets": ["engine.overlap=false", "engine.chunked_prefill_tokens=-1", "engine.prefix_cache=false"],
    "cost": ConstantCost(0.0, 0.0, 1e-6),
    "slots": 1,
}


@pytest.mark.parametrize("alive", [1, 3, 5, 8])
def test_a_deterministic_closed_loop_meets_its_asymptotes(simulate_rows: Simulate, alive: int) -> None:
    """Service 1 ms, think 4 ms: throughput min(N/5, 1) per ms, knee at N = 5, exactly."""
    turns = 40
    rows = sessions(turns, np.full((alive, turns), 0.004), np.full((alive, turns), 1000))
    calls = simulate_rows(rows, workload=WorkloadOptions(sessions=alive), **ONE_SERVER).calls
    ends = np.sort(calls["last_token_ns"])
    # After the first round, which begins with everybody at once, the pattern repeats.
    period_ms = max(5, alive)
    first = ends[calls["row"].size - 20 * alive]
    assert ends[-1] - first == pytest.approx(20 * period_ms * 1e6, abs=period_ms * 1e6)


def test_machine_repairman(simulate_rows: Simulate) -> None:
    """M/M/1 with N customers: utilisation 1 − p0, p0 = 1/Σ N!/(N−k)! (S/Z)^k.

    Busy time is a renewal-reward ratio: over n services its relative deviation stays below
    sqrt(2/n) (both services and thinks are exponential); four of them are allowed.
    """
    alive, turns, service, think = 4, 400, 1000, 3000
    rng = np.random.default_rng(4)
    rows = sessions(
        turns,
        rng.exponential(think * 1e-6, (alive, turns)),
        np.maximum(1, np.rint(rng.exponential(service, (alive, turns)))),
    )
    result = simulate_rows(rows, workload=WorkloadOptions(sessions=alive), **ONE_SERVER)
    sums = sum(factorial(alive) / factorial(alive - k) * (service / think) ** k for k in range(alive + 1))
    expected = 1 - 1 / sums
    ends = result.calls["last_token_ns"].reshape(-1)
    # Sessions run out at different times: count until the first is through.
    last_of_session = [ends[result.calls["session"] == s].max() for s in range(alive)]
    stop = min(last_of_session)
    done = int((ends <= stop).sum())
    found = done * result.stepped_ns / result.num_calls / stop
    assert found == pytest.approx(expected, rel=4 * np.sqrt(2 / done))


def test_sharing_a_step_is_processor_sharing(simulate_rows: Simulate) -> None:
    """Step time in proportion to the rows: every call gets 1/k of the engine, and T = S/(1 − ρ).

    Processor sharing does not care how service is distributed; first-come-first-served with the same
    fixed service would give S(1 + ρ/2(1 − ρ)), 25 % less at ρ = 0.5. Prefill joins the step for
    nothing (mixed chunk), so a call of n tokens costs n − 1 row-steps. Allowed are four deviations of the
    mean wait of as many customers of an M/M/1 queue (see test_single_server), which varies more; a mean
    of first-come-first-served is excluded apart from that.
    """
    calls, tokens, rho = 1500, 41, 0.5
    service_s = (tokens - 1) * 1e-4
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.exponential(service_s / rho, calls))
    rows = [
        CallRow(session_id=f"s{i}", turn=0, arrival_s=float(at), prompt_tokens=1, output_tokens=tokens)
        for i, at in enumerate(arrivals)
    ]
    result = simulate_rows(
        rows,
        sets=["engine.overlap=false", "engine.mixed_chunk=true", "engine.max_running=512"],
        cost=ConstantCost(0.0, 1e-4),
        slots=512,
    )
    times = (result.calls["last_token_ns"] - result.calls["queued_ns"]) / 1e9
    variance = rho * (2 + 5 * rho - 4 * rho**2 + rho**3) / (1 - rho) ** 4
    deviation = service_s * np.sqrt(variance / calls)
    # A newcomer waits for the running step, half a step of about two rows on average.
    assert times.mean() == pytest.approx(service_s / (1 - rho), abs=4 * deviation + 2e-4)
    assert times.mean() > 1.15 * service_s * (1 + rho / (2 * (1 - rho)))


@pytest.mark.parametrize("seed", [6, 7])
def test_littles_law_of_the_decode_batch_is_exact(simulate_rows: Simulate, seed: int) -> None:
    """Σ rows × step time, as the engine counts it, = Σ time that calls spend decoding.

    With vLLM a step runs every decode, so between its first and last token a call is in each step.
    """
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(0.01, 150))
    rows = [
        CallRow(
            session_id=f"s{i}",
            turn=0,
            arrival_s=float(at),
            prompt_tokens=int(rng.integers(1, 3000)),
            output_tokens=int(rng.integers(1, 60)),
        )
        for i, at in enumerate(arrivals)
    ]
    result = simulate_rows(rows, sets=["engine.kind=vllm", "engine.async_scheduling=false"], slots=512)
    row_steps = sum(rank.decode_rows for rank in result.ranks)
    decoding_ns = int((result.calls["last_token_ns"] - result.calls["first_token_ns"]).sum())
    assert row_steps * 1_000_000 == decoding_ns
    # One late row-step for each call that ended, where results are late.
    late = simulate_rows(rows, sets=["engine.kind=vllm"], slots=512)
    late_ns = int((late.calls["last_token_ns"] - late.calls["first_token_ns"]).sum())
    assert sum(rank.decode_rows for rank in late.ranks) * 1_000_000 == late_ns + 1_000_000 * len(rows)
