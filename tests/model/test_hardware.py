"""GPU data: what must hold for any GPU, and the errors."""

from __future__ import annotations

import pytest

from v4sim.errors import ConfigError, ProfileError
from v4sim.model.hardware import gpu, gpu_names
from v4sim.model.mismatch import wrong_model


@pytest.mark.parametrize("name", gpu_names())
def test_figures_are_in_their_order(name: str) -> None:
    device = gpu(name)
    assert device.price_low <= device.price_per_hour <= device.price_high
    assert device.bf16_tflops < device.fp8_tflops
    assert device.host_link_gb_s < device.nvlink_gb_s < device.hbm_gb_s
    assert (device.fp4_tflops > device.fp8_tflops) == (device.arch == "blackwell")
    assert device.has_fp4_index == (device.arch == "blackwell")


def test_the_six_gpus_of_the_reference_profiles() -> None:
    assert set(gpu_names()) == {"b200", "b300", "h200", "gb200", "gb300", "h100"}


def test_a_node_has_at_most_its_own_gpus() -> None:
    assert gpu("h200").node_memory_gib(16) == gpu("h200").node_memory_gib(8)
    assert gpu("gb200").node_memory_gib(8) == gpu("gb200").node_memory_gib(4)
    assert gpu("h200").node_memory_gib(4) == pytest.approx(gpu("h200").node_memory_gib(8) / 2)


def test_an_unknown_gpu_lists_the_choices() -> None:
    with pytest.raises(ConfigError, match="b200, b300, h200"):
        gpu("a100")


def test_a_profile_of_another_model_is_named_with_both_models() -> None:
    error = wrong_model("mine.json", ["v4-pro", "v4-flash"], "v4.1-flash")
    assert isinstance(error, ProfileError)
    assert "v4-flash, v4-pro" in str(error)
    assert "'v4.1-flash'" in str(error)
