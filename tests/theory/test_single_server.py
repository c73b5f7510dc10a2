"""Law 12: with one slot the model is a single-server queue, and the textbook's formulas hold.

Service is a prefill step of one microsecond a token, so a prompt's length is its service time.

Tolerances. The mean wait of n successive customers of a stationary M/G/1 queue has variance
≈ σ²/n because waits are correlated. For M/M/1 with unit service, σ² = ρ(2 + 5ρ − 4ρ² + ρ³)/(1 − ρ)⁴
(Daley 1968). M/D/1 has less. Tests allow four such standard deviations: with one fixed seed a
correct model passes once and for all, and one that is off by the difference between M/M/1 and
M/D/1 (a factor of two in the wait) fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

CALLS = 3000
MEAN_TOKENS = 2000
RHO = 0.5
Single = Callable[..., Any]


def poisson(rng: np.random.Generator, rate_per_s: float, calls: int = CALLS) -> np.ndarray:
    return np.cumsum(rng.exponential(1 / rate_per_s, calls))


def wait_deviation(rho: float, service_s: float, calls: int) -> float:
    """Standard deviation of the mean wait of `calls` customers of an M/M/1 queue."""
    variance = rho * (2 + 5 * rho - 4 * rho**2 + rho**3) / (1 - rho) ** 4
    return float(service_s * np.sqrt(variance / calls))


@pytest.fixture(scope="module")
def exponential(single_server: Single) -> Any:
    rng = np.random.default_rng(1)
    tokens = np.maximum(1, np.rint(rng.exponential(MEAN_TOKENS, CALLS))).astype(int)
    return single_server(poisson(rng, RHO / (MEAN_TOKENS * 1e-6)), tokens), tokens


@pytest.fixture(scope="module")
def deterministic(single_server: Single) -> Any:
    rng = np.random.default_rng(2)
    tokens = np.full(CALLS, MEAN_TOKENS)
    return single_server(poisson(rng, RHO / (MEAN_TOKENS * 1e-6)), tokens), tokens


@pytest.mark.parametrize("world", ["exponential", "deterministic"])
def test_each_wait_is_that_of_lindleys_recursion_to_the_nanosecond(
    world: str, request: pytest.FixtureRequest
) -> None:
    """W(n+1) = max(0, W(n) + S(n) − A(n)), for every customer and without tolerance."""
    served, tokens = request.getfixturevalue(world)
    free = 0
    for arrive, start, end, length in zip(
        served.arrive.tolist(), served.start.tolist(), served.end.tolist(), tokens.tolist(), strict=True
    ):
        assert start == max(arrive, free)
        assert end == start + 1000 * length
        free = end


def test_mm1_mean_wait_is_rho_over_mu_minus_lambda(exponential: Any) -> None:
    served, _ = exponential
    service_s = MEAN_TOKENS * 1e-6
    expected = service_s * RHO / (1 - RHO)
    assert served.wait_s.mean() == pytest.approx(expected, abs=4 * wait_deviation(RHO, service_s, CALLS))


def test_mm1_sojourn_is_exponential(exponential: Any) -> None:
    """P(T > t) = exp(−(μ − λ)t). Of n correlated customers about n(1 − ρ)/(1 + ρ) count as independent."""
    served, _ = exponential
    mean_s = MEAN_TOKENS * 1e-6 / (1 - RHO)
    independent = CALLS * (1 - RHO) / (1 + RHO)
    for share in (0.5, 0.75, 0.9):
        t = -mean_s * np.log(1 - share)
        found = (served.sojourn_s <= t).mean()
        assert found == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / independent))


def test_md1_waits_half_as_long_as_mm1(deterministic: Any) -> None:
    """Pollaczek–Khinchine: W = λE[S²]/2(1 − ρ), so ρ/2(1 − ρ) services where S is fixed."""
    served, _ = deterministic
    service_s = MEAN_TOKENS * 1e-6
    expected = service_s * RHO / (2 * (1 - RHO))
    found = served.wait_s.mean()
    # M/D/1's deviation is about half of M/M/1's: a half of its wait, with shorter memory.
    assert found == pytest.approx(expected, abs=2 * wait_deviation(RHO, service_s, CALLS))
    assert found < 0.8 * service_s * RHO / (1 - RHO)


@pytest.mark.parametrize("world", ["exponential", "deterministic"])
def test_arrivals_find_what_littles_law_says(world: str, request: pytest.FixtureRequest) -> None:
    """L = λW, with L as Poisson arrivals find it (PASTA): an average over customers, not over time.

    The number found has mean ρ/(1 − ρ) and, in M/M/1, variance ρ/(1 − ρ)²; correlation leaves
    n(1 − ρ)/(1 + ρ) of n.
    """
    served, _ = request.getfixturevalue(world)
    departed = np.searchsorted(np.sort(served.end), served.arrive, side="right")
    found = (np.arange(CALLS) - departed).mean()
    rate = CALLS / (served.end[-1] - served.arrive[0]) * 1e9
    expected = rate * served.sojourn_s.mean()
    deviation = np.sqrt(RHO / (1 - RHO) ** 2 / (CALLS * (1 - RHO) / (1 + RHO)))
    assert found == pytest.approx(expected, abs=4 * deviation)


@pytest.mark.parametrize("world", ["exponential", "deterministic"])
def test_the_server_is_busy_for_exactly_the_work_that_came(
    world: str, request: pytest.FixtureRequest
) -> None:
    served, tokens = request.getfixturevalue(world)
    assert served.result.stepped_ns == 1000 * int(tokens.sum())
    assert served.result.ranks[0].busy_ns == served.result.stepped_ns


def test_service_may_as_well_be_decode_steps(
    single_server: Single, simulate_rows: Callable[..., Any]
) -> None:
    """An output of n tokens is n steps: one prefill, n − 1 decodes. Same queue, same nanoseconds."""
    from v4sim.cost.base import ConstantCost
    from v4traces import CallRow

    rng = np.random.default_rng(3)
    arrivals, lengths = poisson(rng, 250.0, 400), rng.geometric(0.5, 400)
    rows = [
        CallRow(session_id=f"s{i}", turn=0, arrival_s=at, prompt_tokens=1, output_tokens=int(n))
        for i, (at, n) in enumerate(zip(arrivals, lengths, strict=True))
    ]
    decoded = simulate_rows(rows, sets=["engine.overlap=false"], cost=ConstantCost(0.001), slots=1)
    prefilled = single_server(arrivals, lengths * 1000)
    assert np.array_equal(decoded.calls["admit_ns"], prefilled.start)
    assert np.array_equal(decoded.calls["last_token_ns"], prefilled.end)


def test_overlap_adds_a_late_step_to_a_single_slot(simulate_rows: Callable[..., Any]) -> None:
    """What the engine adds to the textbook: with overlap a slot is free one step after the last token."""
    from v4traces import CallRow

    rows = [
        CallRow(session_id=f"s{i}", turn=0, arrival_s=0.0, prompt_tokens=1, output_tokens=3) for i in range(3)
    ]
    starts = [
        simulate_rows(rows, sets=[f"engine.overlap={overlap}"], slots=1).calls["admit_ns"].tolist()
        for overlap in ("false", "true")
    ]
    assert starts == [[0, 3_000_000, 6_000_000], [0, 4_000_000, 8_000_000]]
