"""Front ends: one prompt at a time, in order; answers wait for a round of prompts in SGLang only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.router.front_end import FrontEnd

US = 1_000


def front(servers: int = 1, holds: bool = True, request_ns: int = 0) -> FrontEnd:
    return FrontEnd(1, servers, request_ns=request_ns, token_us=1.0, holds_answers=holds, seed=0)


def sent(end: FrontEnd, calls: Sequence[tuple[int, int]]) -> list[int]:
    """Moments in microseconds at which calls (moment, tokens) are tokenised."""
    return [end.ready_ns(0, uid, tokens, at * US) // US for uid, (at, tokens) in enumerate(calls)]


def seen(end: FrontEnd, *moments: int) -> list[int]:
    return (end.seen_ns(np.array(moments) * US) // US).tolist()


def test_prompts_that_come_together_are_tokenised_one_after_another() -> None:
    assert sent(front(), [(0, 100), (0, 50), (0, 10), (500, 7)]) == [100, 150, 160, 507]


def test_answers_wait_for_the_whole_round_and_later_prompts_form_the_next() -> None:
    end = front()
    assert sent(end, [(0, 100), (0, 100), (50, 30), (60, 30), (400, 10)]) == [100, 200, 230, 260, 410]
    # Round one is 0 to 200, round two 200 to 260: an answer between them goes out.
    assert seen(end, 120, 200, 210, 300, -1) == [200, 200, 260, 300, -1]


def test_vllm_tokenises_in_a_thread_and_answers_pass() -> None:
    end = front(holds=False)
    sent(end, [(0, 100), (0, 100)])
    assert seen(end, 120, 150) == [120, 150]


def test_several_front_ends_share_the_work() -> None:
    one, four = sent(front(1), [(0, 100)] * 40), sent(front(4), [(0, 100)] * 40)
    assert max(one) == 4000
    assert 1000 <= max(four) < 2500


def test_without_host_time_nothing_waits() -> None:
    end = FrontEnd(2, 1, request_ns=0, token_us=0.0, holds_answers=True, seed=0)
    assert [end.ready_ns(replica, 0, 10**6, 5) for replica in (0, 1)] == [5, 5]
    assert end.seen_ns(np.array([5, 7])).tolist() == [5, 7]


arrivals = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 80)), min_size=1, max_size=30)


@given(arrivals, st.integers(0, 3000))
def test_laws_of_a_queue(gaps: list[tuple[int, int]], moment: int) -> None:
    """In order, busy no longer than its work, and an answer never waits beyond the backlog of its moment."""
    calls = [(sum(gap for gap, _ in gaps[: i + 1]), tokens) for i, (_, tokens) in enumerate(gaps)]
    end = front()
    done = sent(end, calls)
    assert done == sorted(done)
    assert all(at + tokens <= when for (at, tokens), when in zip(calls, done, strict=True))
    for i, (at, tokens) in enumerate(calls):
        assert done[i] == max(at, done[i - 1] if i else 0) + tokens
    shown = int(end.seen_ns(np.full(len(calls), moment * US))[0]) // US
    assert moment <= shown <= max(moment, max(when for (at, _), when in zip(calls, done, strict=True)))
    backlog = [when for (at, _), when in zip(calls, done, strict=True) if at <= moment]
    assert shown <= max([moment, *backlog])


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_burst_delays_first_tokens_by_the_engines_rule(engine: str, burst_ttft_s: dict[str, float]) -> None:
    """Eight prompts of 100K tokens at 2 µs a token: SGLang shows nothing before 1.6 s."""
    earliest = burst_ttft_s[engine]
    assert (earliest >= 1.6) if engine == "sglang" else (earliest < 0.5)


@pytest.fixture(scope="module")
def burst_ttft_s(make_trace) -> dict[str, float]:
    from v4sim import simulate
    from v4sim.config import from_dict, resolve
    from v4sim.cost import ConstantCost
    from v4sim.workload import WorkloadOptions
    from v4traces import CallRow

    table = make_trace(
        [CallRow(session_id=f"s{i}", turn=0, prompt_tokens=100_000, output_tokens=4) for i in range(8)]
    )
    found = {}
    for engine in ("sglang", "vllm"):
        deployment = resolve(
            from_dict(
                {
                    "hardware": {"gpu": "h200", "num_gpus": 4},
                    "parallel": {"attention_tp": 4, "attention_dp": 1},
                    "engine": {"kind": engine, "cpu_cached_token_us": 2.0},
                },
                engine,
            )
        )
        cost = ConstantCost(0.001, per_prefill_token_s=1e-8)
        calls = simulate.run(table, deployment, cost, WorkloadOptions(sessions=8)).calls
        found[engine] = float((calls["first_seen_ns"] - calls["sent_ns"]).min()) / 1e9
    return found
