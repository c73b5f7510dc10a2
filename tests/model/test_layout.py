"""Byte layouts: what must hold for any model and length, then the constants of the published formats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.errors import ConfigError
from v4sim.model import ModelSpec, model_names, spec
from v4sim.model.layout import (
    IdealLayout,
    Layout,
    SglangLayout,
    VllmLayout,
    history_families,
    layout,
    layout_names,
    state_bytes,
    state_rings,
)
from v4sim.model.layout.sglang import padded
from v4sim.model.layout.vllm_groups import even_share

MILLION = 1_048_576
GIB = 2**30

models = st.sampled_from([(name, dtype) for name in model_names() for dtype in spec(name).index_dtypes])
lengths = st.integers(0, MILLION)


def family(model: ModelSpec, name: str, dtype: str = "fp4") -> int:
    return IdealLayout(model, dtype).family_bytes(MILLION)[name]


class TestLaws:
    @given(models, lengths, st.integers(1, 4096), st.sampled_from(layout_names()))
    def test_more_history_never_takes_fewer_bytes(
        self, model: tuple[str, str], tokens: int, more: int, name: str
    ) -> None:
        found = layout(name, spec(model[0]), model[1])
        assert found.history_bytes(tokens + more) >= found.history_bytes(tokens)

    @given(models, lengths, st.sampled_from(layout_names()))
    def test_families_sum_to_the_total_and_none_is_negative(
        self, model: tuple[str, str], tokens: int, name: str
    ) -> None:
        found = layout(name, spec(model[0]), model[1])
        families = found.family_bytes(tokens)
        assert sum(families.values()) == found.history_bytes(tokens)
        assert min(families.values()) >= 0

    @given(models, lengths)
    def test_what_an_engine_allocates_is_never_below_the_ideal(
        self, model: tuple[str, str], tokens: int
    ) -> None:
        ideal = IdealLayout(spec(model[0]), model[1]).family_bytes(tokens)
        for engine in (SglangLayout, VllmLayout):
            allocated = engine(spec(model[0]), model[1]).family_bytes(tokens)
            for name in ideal:
                assert allocated[name] >= ideal[name], (engine.name, name)

    @given(models, st.integers(1, 4096))
    def test_padding_is_less_than_a_page(self, model: tuple[str, str], pages: int) -> None:
        """Whole pages cost whole pages: nothing is added per request but the window."""
        found = SglangLayout(spec(model[0]), model[1])
        window = found.family_bytes(256)["swa"]
        assert found.history_bytes(256 * pages) == pages * found.page_bytes + window
        assert found.history_bytes(256 * pages - 255) == found.history_bytes(256 * pages)

    @given(st.integers(0, 10**7))
    def test_pool_pages_are_aligned(self, size: int) -> None:
        assert padded(size) % 576 == 0
        assert 0 <= padded(size) - size < 576

    @given(models, st.integers(1, 16))
    def test_speculation_never_shrinks_the_state(self, model: tuple[str, str], draft: int) -> None:
        assert state_bytes(spec(model[0]), draft) >= state_bytes(spec(model[0]))

    def test_state_is_split_between_window_pages_and_slots(self, any_model: ModelSpec) -> None:
        found = SglangLayout(any_model, any_model.index_dtypes[0])
        assert found.swa_page_state_bytes + found.state_bytes_per_slot == sum(r.bytes for r in found.rings)

    @given(models, st.floats(0.01, 1.0), st.floats(0.01, 1.0))
    def test_a_larger_window_pool_makes_a_token_dearer(
        self, model: tuple[str, str], one: float, other: float
    ) -> None:
        found = SglangLayout(spec(model[0]), model[1])
        low, high = sorted((one, other))
        assert found.bytes_per_full_token(low) <= found.bytes_per_full_token(high)

    @given(models, st.integers(1, 65536), st.integers(1, 65536))
    def test_a_larger_step_holds_at_least_as_many_window_blocks(
        self, model: tuple[str, str], one: int, other: int
    ) -> None:
        found = VllmLayout(spec(model[0]), model[1])
        low, high = sorted((one, other))
        assert found.window_blocks(low) <= found.window_blocks(high)

    @given(models, st.integers(0, 3), st.sampled_from(("0.33", "0.25")))
    def test_every_group_fits_its_block(self, model: tuple[str, str], drafts: int, version: str) -> None:
        """A block is a physical block, whichever group takes it; and no smaller one would do."""
        found = VllmLayout(spec(model[0]), model[1], draft_layers=drafts, version=version)
        widest = 0
        for packed in found.packing.buckets:
            layers = sum(count for _, count in packed.bucket.pages)
            pages = [size for size, count in packed.bucket.pages for _ in range(count)]
            assert len(pages) == layers
            each = -(-layers // packed.groups)
            widest = max(widest, sum(sorted(pages)[:each]))
        assert widest <= found.block_bytes

    @given(st.lists(st.integers(1, 80), min_size=1, max_size=5), st.integers(1, 80))
    def test_even_shares_waste_the_least(self, layers: list[int], least: int) -> None:
        least = min(least, max(layers))
        share = even_share(layers, least)
        waste = [sum(-count % each for count in layers) for each in range(least, max(layers) + 1)]
        assert sum(-count % share for count in layers) == min(waste)

    def test_an_unknown_layout_or_format_is_refused(self, v41: ModelSpec) -> None:
        with pytest.raises(ConfigError, match="ideal, sglang, vllm"):
            layout("paged", v41, "fp4")
        with pytest.raises(ConfigError, match="has fp4 index keys"):
            layout("ideal", v41, "fp8")


class TestOneMillionTokens:
    @pytest.mark.parametrize(
        ("name", "dtype", "size"),
        [
            ("v4-flash", "fp4", 3_688_172_544),
            ("v4-pro", "fp4", 5_280_404_480),
            ("v4-flash", "fp8", 4_040_494_080),
            ("v4-pro", "fp8", 5_783_720_960),
            ("v4.1-flash", "fp4", 933_232_640 + 2_703_360),
        ],
    )
    def test_history(self, name: str, dtype: str, size: int) -> None:
        assert IdealLayout(spec(name), dtype).history_bytes(MILLION) == size

    @pytest.mark.parametrize(("name", "gib"), [("v4-flash", 3.4349), ("v4-pro", 4.9178)])
    def test_history_in_gib(self, name: str, gib: float) -> None:
        assert IdealLayout(spec(name), "fp4").history_bytes(MILLION) / GIB == pytest.approx(gib, abs=5e-5)

    def test_families_of_flash(self, flash: ModelSpec) -> None:
        assert family(flash, "c4") == 3_214_934_016
        assert family(flash, "c4_index") == 374_341_632
        assert family(flash, "c128") == 95_682_560
        assert family(flash, "swa") == 3_214_336

    def test_families_of_pro(self, pro: ModelSpec) -> None:
        assert family(pro, "c4") == 4_592_762_880
        assert family(pro, "c4_index") == 534_773_760
        assert family(pro, "c128") == 148_307_968
        assert family(pro, "swa") == 4_559_872

    def test_one_csa_layer(self, flash: ModelSpec) -> None:
        assert family(flash, "c4_index") // 21 == 17 * 2**20
        assert family(flash, "c4") // 21 == 146 * 2**20

    @pytest.mark.parametrize(("name", "gib"), [("v4-flash", 3.4797), ("v4-pro", 4.9871)])
    def test_padded_pages(self, name: str, gib: float) -> None:
        assert 4096 * SglangLayout(spec(name), "fp4").page_bytes / GIB == pytest.approx(gib, abs=5e-5)

    def test_v41(self, v41: ModelSpec) -> None:
        ideal = IdealLayout(v41, "fp4")
        assert ideal.bytes_per_token == 890
        assert ideal.history_bytes(MILLION) - ideal.swa_ring_bytes == 890 * 2**20
        assert ideal.swa_ring_bytes == 2_703_360
        main = sum(f.bytes_per_token for f in ideal.families if not f.name.endswith("_index"))
        assert (main, ideal.bytes_per_token - main) == (720, 170)


class TestSglang:
    def test_pages_of_flash(self, flash: ModelSpec) -> None:
        pages: dict[tuple[str, str], int] = {}
        for dtype in ("fp4", "fp8"):
            found = SglangLayout(flash, dtype)
            pages |= {(f.name, dtype): found.family_page_bytes(f) for f in found.families}
            assert found.swa_layer_page_bytes == 149_760
        assert pages["c4", "fp4"] == pages["c4", "fp8"] == 37_440
        assert pages["c128", "fp4"] == 1_728
        assert pages["c4_index", "fp4"] == 4_352
        assert pages["c4_index", "fp8"] == 8_448

    @pytest.mark.parametrize(
        ("name", "dtype", "size"),
        [
            ("v4-flash", "fp8", 998_208),
            ("v4-pro", "fp8", 1_430_208),
            ("v4-flash", "fp4", 912_192),
            ("v4-pro", "fp4", 1_307_328),
        ],
    )
    def test_page_of_all_families(self, name: str, dtype: str, size: int) -> None:
        assert SglangLayout(spec(name), dtype).page_bytes == size

    @pytest.mark.parametrize(
        ("name", "window", "state"),
        [("v4-flash", 6_439_680, 1_720_320), ("v4-pro", 9_135_360, 2_457_600)],
    )
    def test_window_page(self, name: str, window: int, state: int) -> None:
        found = SglangLayout(spec(name), "fp8")
        assert found.swa_page_state_bytes == state
        assert found.swa_page_bytes == window + state

    @pytest.mark.parametrize("dtype", ["fp8", "fp4"])
    def test_price_of_a_token_ignores_the_index_format(self, dtype: str) -> None:
        """0.5.15 prices entries, 0.5.23 whole pages (its own figures: `tests/oracle/test_pools.py`)."""
        for version, flash, pro in (("0.5.15", 7_033.45, 10_033.8375), ("0.5.23", 7_086.75, 10_115.25)):
            for name, price in (("v4-flash", flash), ("v4-pro", pro)):
                found = SglangLayout(spec(name), dtype, version=version)
                assert found.bytes_per_full_token() == pytest.approx(price)

    def test_price_with_a_draft_layer(self, flash: ModelSpec) -> None:
        """Rings double and every layer's price is shared out over one more layer."""
        found = SglangLayout(flash, "fp8", draft_tokens=1, version="0.5.15")
        assert found.bytes_per_full_token(draft_layers=1) == pytest.approx((7_033.45 + 672) * 44 / 43)

    def test_the_two_numbers_differ(self, flash: ModelSpec) -> None:
        fp4 = SglangLayout(flash, "fp4")
        assert fp4.bytes_per_token < 3_850.25 < SglangLayout(flash, "fp8").bytes_per_token


class TestState:
    @pytest.mark.parametrize(("name", "size"), [("v4-flash", 12_206_080), ("v4-pro", 18_710_528)])
    def test_per_request(self, name: str, size: int) -> None:
        assert state_bytes(spec(name)) == size
        assert state_bytes(spec(name), 3) == 2 * size

    def test_rings_of_flash(self, flash: ModelSpec) -> None:
        found = {ring.name: (ring.rows, ring.values, ring.bytes) for ring in state_rings(flash)}
        assert found == {
            "c4_state": (8, 2048, 1_376_256),
            "c4_index_state": (8, 512, 344_064),
            "c128_state": (128, 1024, 10_485_760),
        }

    def test_pair_state_of_v41(self, v41: ModelSpec) -> None:
        (ring,) = state_rings(v41, draft_tokens=5)
        assert (ring.layers, ring.values * 4, ring.rows) == (3, 4096, 8)
        assert state_rings(v41, draft_tokens=8)[0].rows == 16


class TestVllm:
    """Against vLLM's own planning over a grid: `tests/oracle/test_layout.py`. Here the figures by hand."""

    def test_a_block_is_as_wide_as_its_widest_group(self, flash: ModelSpec) -> None:
        """Since 0.27: the history of 21 C4 layers, 20 of C128, and FP4 or FP8 keys, each page padded."""
        history = 21 * 37_440 + 20 * 1_728
        assert VllmLayout(flash, "fp4").block_bytes == history + 21 * 4_608 == 917_568
        assert VllmLayout(flash, "fp8").block_bytes == history + 21 * 8_640 == 1_002_240

    @pytest.mark.parametrize("dtype", ["fp4", "fp8"])
    def test_a_block_of_025_has_places_by_page_size(self, flash: ModelSpec, dtype: str) -> None:
        """22 window layers want 22 places of 37,440 bytes; FP4 keys lie where FP8 keys would."""
        found = VllmLayout(flash, dtype, version="0.25")
        assert found.block_bytes == 22 * 37_440 + 21 * 8_640 + 20 * 1_728 == 1_039_680

    def test_reported_bytes_per_token_are_those_of_the_campaign(self, flash: ModelSpec) -> None:
        """Derived from block groups, against 7,033 B derived from a start-up log of 0.25; not fitted."""
        found = VllmLayout(flash, "fp4", version="0.25").reported_bytes_per_token(MILLION, 8192)
        assert found == pytest.approx(7_033, rel=0.005)

    def test_groups_of_flash(self, flash: ModelSpec) -> None:
        buckets = VllmLayout(flash, "fp4").packing.buckets[1:]
        assert [(b.groups, b.bucket.window, b.bucket.block_tokens) for b in buckets] == [
            (2, 128, 64),
            (1, 8, 4),
            (1, 128, 8),
        ]
        assert [b.kept_blocks for b in buckets] == [2, 2, 16]

    def test_groups_of_v41(self, v41: ModelSpec) -> None:
        """40 windows in 4 groups no wider than the history, one ring that nothing shares."""
        found = VllmLayout(v41, "fp4")
        assert [(b.groups, b.kept_blocks) for b in found.packing.buckets[1:]] == [(4, 4), (1, 0)]
        assert found.block_bytes % 3168 == 0  # whole rows of 528 and of 288 bytes
        assert found.window_blocks(8192) == 4 * 261 + 1

    def test_draft_layers_add_windows_alone(self, flash: ModelSpec) -> None:
        plain, drafting = VllmLayout(flash, "fp4"), VllmLayout(flash, "fp4", draft_layers=3)
        assert drafting.buckets[1].pages == ((37_440, 46),)
        assert [*drafting.buckets[:1], *drafting.buckets[2:]] == [*plain.buckets[:1], *plain.buckets[2:]]

    def test_a_request_holds_history_and_windows(self, flash: ModelSpec) -> None:
        found = VllmLayout(flash, "fp4")
        assert found.request_blocks(256 * 10, 1) == 10 + found.window_blocks(1)

    def test_families_are_those_of_the_model(self, any_model: ModelSpec) -> None:
        dtype = any_model.index_dtypes[0]
        expected = [f.name for f in history_families(any_model, dtype)]
        found: Layout = VllmLayout(any_model, dtype)
        assert sorted(found.family_bytes(1000)) == sorted([*expected, "swa"])


def of_version(version: str) -> VllmLayout:
    return VllmLayout(spec("v4-flash"), "fp4", version=version)


@pytest.mark.parametrize("version", ["0.33.0", "0.33rc1", "0.40.dev7+g1234", "1.0", "0.1.dev1+g1234", "dev"])
def test_a_vllm_built_from_source_is_taken_for_the_newest(version: str) -> None:
    assert of_version(version).block_bytes == of_version("0.33").block_bytes
    assert of_version(version).steps_in_flight(True) == 2


def test_vllm_026_packs_as_025_and_counts_steps_as_027() -> None:
    old, between, new = (of_version(v) for v in ("0.25", "0.26.1", "0.27"))
    assert old.block_bytes == between.block_bytes > new.block_bytes
    assert [layout.steps_in_flight(True) for layout in (old, between, new)] == [1, 2, 2]
