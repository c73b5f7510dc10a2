"""What tasks and tokens cost, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.metrics.cost import Price, StepSplit, cost_entry, step_split
from v4sim.metrics.tasks import Tasks, tasks_entry, work_shares
from v4sim.metrics.window import Window
from v4traces import CallRow

S = 1_000_000_000
HOUR = Window(0, 3600 * S, "an hour")
PRICE = Price(3.0, 2.0, 6.0)
TOKENS = {"device": 800, "host": 100, "storage": 100, "computed": 500, "output": 250}


@pytest.fixture(scope="module")
def one_task(make_trace, make_calls, served):
    table = make_trace([CallRow(session_id="a", turn=0, prompt_tokens=1, output_tokens=1)])
    calls = make_calls([served(0, 0, 0, 1, 1000, gpu_share_ns=60 * S)])
    return calls, Tasks.of(calls, table)


@pytest.fixture
def two_tasks(make_trace, make_calls, served):
    """Task `a` succeeds and uses 60 s of step time, `b` fails and uses 20 s, half of it after the hour."""
    table = make_trace(
        [
            CallRow(session_id="a", turn=0, prompt_tokens=1, output_tokens=1, success=True),
            CallRow(session_id="b", turn=0, prompt_tokens=1, output_tokens=1, success=False),
        ]
    )
    calls = make_calls(
        [
            served(0, 0, 0, 1, 1000, session=0, gpu_share_ns=60 * S),
            served(1, 0, 3500, 3510, 3700, session=1, gpu_share_ns=20 * S),
        ]
    )
    return calls, Tasks.of(calls, table)


def entry(run, window=HOUR, split=None, **rest):
    calls, tasks = run
    given = {"gpus": 8, "gpus_per_replica": 4, "tokens": TOKENS, "idle_share": 0.25, "bootstrap": None} | rest
    return cost_entry(calls, tasks, window, PRICE, split=split, **given)


def test_a_task_counts_by_its_work_inside_the_window(two_tasks):
    calls, tasks = two_tasks
    assert work_shares(tasks, calls, HOUR).tolist() == [1.0, 0.5]
    whole = Window(0, 4000 * S, "")
    assert work_shares(tasks, calls, whole).tolist() == [1.0, 1.0]
    found = tasks_entry(tasks, calls, HOUR, 4, None)
    assert (found["completed"], found["equivalent"], found["per_hour"]) == (1, 1.5, 1.5)


def test_amortised_is_the_bill_over_the_tasks(two_tasks):
    found = entry(two_tasks)
    assert found["window_cost"] == 24.0  # 8 GPUs, one hour, 3 dollars
    assert found["amortised_per_task"] == 16.0
    assert (found["price_per_gpu_hour"], found["low"], found["high"]) == (3.0, 2.0, 6.0)
    assert found["idle_share"] == 0.25


def test_attributed_is_the_tasks_own_step_time(two_tasks):
    # (60 s + half of a task of 20 s) on 4 GPUs, over 1.5 tasks.
    assert entry(two_tasks)["attributed_per_task"] == pytest.approx((60 + 10) * 4 / 3600 * 3.0 / 1.5)


def test_a_successful_task_bears_the_failed_ones(two_tasks):
    assert entry(two_tasks)["per_successful_task"] == 24.0


def test_success_that_is_not_known_has_no_cost(one_task):
    found = entry(one_task)
    assert found["amortised_per_task"] == 24.0
    assert "per_successful_task" not in found


def test_no_work_has_no_cost_per_task(two_tasks):
    found = entry(two_tasks, window=Window(2000 * S, 3000 * S, ""))
    assert "amortised_per_task" not in found
    assert found["window_cost"] == pytest.approx(24.0 * 1000 / 3600)
    assert "window_cost" not in entry(two_tasks, window=Window(5, 5, ""))


def test_token_prices_follow_their_steps(two_tasks):
    found = entry(two_tasks, split=StepSplit(prompt=0.5, cached=0.125, output=0.375))
    assert found["per_million_input"] == pytest.approx(12.0 / 500 * 1e6)
    assert found["per_million_cached"] == pytest.approx(3.0 / 1000 * 1e6)
    assert found["per_million_output"] == pytest.approx(9.0 / 250 * 1e6)


def test_a_kind_of_token_that_did_not_occur_has_no_price(two_tasks):
    none = dict.fromkeys(TOKENS, 0) | {"output": 1}
    found = entry(two_tasks, tokens=none, split=StepSplit(0.5, 0.0, 0.5))
    assert not {"per_million_input", "per_million_cached"} & found.keys()


def test_steps_pay_for_what_they_carry(make_totals):
    totals = make_totals(100.0, prefill=[{"moe": 5.0, "h2d": 1.0}], decode=[{"moe": 10.0}])
    # Without mixed steps: 6 s for prompts, 1 of it fetching, 10 s for output.
    assert step_split(totals) == StepSplit(5 / 16, 1 / 16, 10 / 16)


def test_mixed_steps_are_split_by_tokens(make_steps, make_totals):
    totals = make_totals(100.0, mixed_tokens=(3000, 1000))
    totals.steps.parts_ns["mixed"][:] = make_steps(mixed=[{"moe": 8.0}]).parts_ns["mixed"]
    assert step_split(totals) == StepSplit(0.75, 0.0, 0.25)


def test_no_steps_no_split(make_totals):
    assert step_split(make_totals(1.0)) is None


shares = st.tuples(*[st.floats(0.01, 1.0)] * 3)


@given(shares, st.tuples(*[st.integers(1, 10**9)] * 3))
def test_token_prices_add_up_to_the_bill(one_task, weights, counts):
    total = sum(weights)
    split = StepSplit(*(weight / total for weight in weights))
    computed, cached, output = counts
    tokens = {"device": cached, "host": 0, "storage": 0, "computed": computed, "output": output}
    found = entry(one_task, tokens=tokens, split=split)
    paid = (
        found["per_million_input"] * computed
        + found["per_million_cached"] * cached
        + found["per_million_output"] * output
    ) / 1e6
    assert paid == pytest.approx(found["window_cost"])
