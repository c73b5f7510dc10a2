"""One reference profile from the published tables: every builder in a fixed order."""

from __future__ import annotations

from v4calib.aic.comm import add_collectives, add_deepep
from v4calib.aic.compose import add_composed_model
from v4calib.aic.decode import add_decode
from v4calib.aic.dense import add_gemms, add_mhc
from v4calib.aic.draft import DEVICE, Draft
from v4calib.aic.gathered_scan import add_gathered_scan
from v4calib.aic.indexer import add_bandwidth, add_scan, add_topk, bandwidth_bytes_per_us
from v4calib.aic.links import add_links
from v4calib.aic.moe import add_marlin, add_megamoe, add_moe
from v4calib.aic.prefill import add_prefill
from v4calib.aic.source import PACKAGE, VERSION, Source


def draft_profile(gpu: str, source: Source) -> Draft:
    """All operations of a GPU, with the comparisons that their residuals come from."""
    draft = Draft(gpu, source)
    rate = bandwidth_bytes_per_us(draft)
    add_bandwidth(draft, rate)
    add_scan(draft, rate)
    add_topk(draft)
    add_decode(draft)
    add_prefill(draft)
    add_gathered_scan(draft)
    add_mhc(draft)
    add_gemms(draft)
    add_moe(draft)
    add_megamoe(draft)
    add_marlin(draft)
    add_collectives(draft)
    add_deepep(draft)
    add_composed_model(draft)
    add_links(draft)
    return draft


def description(gpu: str) -> str:
    return (
        f"Reference profile of one {DEVICE[gpu]}: kernel tables published in {PACKAGE} {VERSION}, corrected "
        "for their known traps; what no table holds is composed, each with its source. "
        "Nothing here was measured by v4calib."
    )
