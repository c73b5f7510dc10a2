"""Each resource grows alone: what it changes, what it leaves, and when it cannot be asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest

from v4sim.errors import ConfigError
from v4sim.limiter import RESOURCES, resources
from v4sim.limiter.resources import EXPERTS, LINKS, Unasked, Variant, faster
from v4sim.scenario import Scenario
from v4sim.simulate import front_end
from v4sim.workload import WorkloadOptions

Make = Callable[..., Scenario]
VLLM = "8xB200 V4-Flash DP8 vllm"


def grown(scenario: Scenario, name: str, step: float = 0.1) -> Variant:
    (resource,) = resources([name])
    variant = resource.more(scenario, step)
    assert isinstance(variant, Variant), variant
    return variant


def why_not(scenario: Scenario, name: str) -> str:
    (resource,) = resources([name])
    refused = resource.more(scenario, 0.1)
    assert isinstance(refused, Unasked)
    return refused.reason


# What each resource may change of a scenario; everything else must be the very same object.
TOUCHES = {
    **{name: {"profile"} for name in ("gpu", "attention", "index", "experts", "links")},
    "host_step": {"profile", "deployment"},
    "front_end": {"deployment"},
    "kv_pool": {"pools"},
    "swa_pool": {"pools"},
    "slots": {"pools", "deployment"},
    "chunk": {"deployment"},
    "ranks": {"workload"},
}


def test_every_resource_is_named_here() -> None:
    assert set(TOUCHES) == {resource.name for resource in RESOURCES}


@pytest.mark.parametrize("name", sorted(TOUCHES))
def test_a_resource_grows_alone(scenario: Make, name: str) -> None:
    before = scenario()
    after = grown(before, name).scenario
    changed = {
        one.name for one in fields(before) if getattr(before, one.name) is not getattr(after, one.name)
    }
    assert changed == TOUCHES[name]


def test_kernels_of_a_family_take_less_time_and_no_other(scenario: Make) -> None:
    profile = scenario().profile
    quick = faster(profile, EXPERTS, 1.1)
    for name, operation in profile.operations.items():
        if name.partition(".")[0] not in EXPERTS:
            assert quick.operations[name] is operation
    name = next(name for name in profile.operations if name.startswith("megamoe."))
    before, after = profile.operations[name].values, quick.operations[name].values
    assert after == pytest.approx([value / 1.1 for value in before])


def test_shares_of_other_times_do_not_shrink(scenario: Make) -> None:
    profile = scenario().profile
    shares = [name for name, operation in profile.operations.items() if operation.unit == "share"]
    assert shares
    quick = faster(profile, {name.partition(".")[0] for name in profile.operations}, 2.0)
    assert all(quick.operations[name] is profile.operations[name] for name in shares)


def test_a_pool_grows_by_whole_pages_and_leaves_the_others(scenario: Make) -> None:
    before = scenario()
    after = grown(before, "kv_pool").scenario.pools
    assert after.kv_tokens % 256 == 0
    assert after.kv_tokens == pytest.approx(1.1 * before.pools.kv_tokens, rel=1e-3)
    assert (after.swa_tokens, after.request_slots) == (before.pools.swa_tokens, before.pools.request_slots)


def test_vllm_has_one_pool_of_blocks(scenario: Make) -> None:
    before = scenario(preset=VLLM)
    after = grown(before, "kv_pool").scenario.pools
    more_blocks = (after.kv_tokens - before.pools.kv_tokens) // 256
    assert after.num_blocks - before.pools.num_blocks == more_blocks > 0
    assert after.swa_tokens == after.kv_tokens
    assert "KV pool" in why_not(before, "swa_pool")


@pytest.mark.parametrize("preset", ["4xB200 V4-Flash DPA4+EP4 sglang", VLLM])
def test_slots_grow_in_the_pool_and_in_the_scheduler(scenario: Make, preset: str) -> None:
    from v4sim.config import rank_limits

    variant = grown(scenario(preset=preset), "slots").scenario
    assert rank_limits(variant.deployment).max_running == variant.pools.request_slots


def test_a_faster_host_launches_faster_whoever_states_the_launch(scenario: Make) -> None:
    own = grown(scenario(sets=["engine.cpu_launch_us=55"]), "host_step").scenario
    assert own.deployment.engine.cpu_launch_us == pytest.approx(50)
    published = scenario()
    after, before = (
        s.profile.operation("eager_launch.sglang")
        for s in (grown(published, "host_step").scenario, published)
    )
    assert after.term("per_operation") == pytest.approx(before.term("per_operation") / 1.1)


def test_the_smallest_step_is_one_more(scenario: Make) -> None:
    before = scenario(sets=["engine.max_running=8"])
    assert before.pools.request_slots == 2
    assert grown(before, "slots").scenario.pools.request_slots == 3


def test_the_buffers_of_a_larger_chunk_grow_with_it(scenario: Make) -> None:
    before = scenario(preset=VLLM)
    assert before.deployment.engine.dispatch_tokens_per_rank == 8_320
    after = grown(before, "chunk").scenario.deployment.engine
    assert after.dispatch_tokens_per_rank == after.max_batched_tokens == 8_960


def test_host_times_shrink_from_what_is_in_force(scenario: Make) -> None:
    before = scenario()
    host = grown(before, "host_step").scenario.deployment.engine.cpu_step_us
    assert host == pytest.approx((2750 + 172) / 1.1)
    assert front_end(grown(before, "front_end").scenario.deployment)[1] == pytest.approx(0.5 / 1.1)


def test_what_cannot_be_asked_says_why(scenario: Make) -> None:
    free = scenario(sets=["engine.cpu_cached_token_us=0", "engine.cpu_request_us=0", "engine.cpu_step_us=0"])
    assert "are 0" in why_not(free, "front_end")
    assert "is 0" in why_not(free, "host_step")
    assert "chunks" in why_not(
        scenario(sets=["engine.chunked_prefill_tokens=-1", "model.max_context_tokens=32768"]), "chunk"
    )
    open_loop = scenario(workload=WorkloadOptions(arrivals="poisson", rate_per_s=1.0))
    assert "times of their own" in why_not(open_loop, "ranks")
    assert "1 sessions" in why_not(scenario(workload=WorkloadOptions(sessions=1)), "ranks")


def test_an_unknown_resource_names_those_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"'hbm' is not a resource; choose from gpu, attention, .*ranks"):
        resources(["kv_pool", "hbm"])
    assert [resource.name for resource in resources(["slots", "gpu"])] == ["gpu", "slots"]


def test_links_are_not_kernels(scenario: Make) -> None:
    before = scenario()
    after = grown(before, "gpu").scenario.profile
    for name, operation in before.profile.operations.items():
        if name.partition(".")[0] in LINKS:
            assert after.operations[name] is operation
