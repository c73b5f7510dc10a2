"""What the seconds of each part rest on, from the run's provenance entries.

An entry says itself which parts it feeds (`parts`), or its operation's stem does: `moe.fp8.sglang...` feeds
the part `moe`. A part with several kinds shows all of them, the weakest claim last.
"""

from __future__ import annotations

from v4reports.names import PROVENANCE
from v4reports.rundir import Run, Source

# Stems of operations that are not named like the part their time is booked under.
PARTS_OF_STEM: dict[str, tuple[str, ...]] = {
    "csa_decode": ("attention_other",),
    "csa_prefill": ("attention_other",),
    "csa_tail": ("attention_other",),
    "hca_decode": ("hca", "swa"),  # the HCA module stands for layers with a sliding window alone
    "hca_prefill": ("hca", "swa"),
    "hca_context": ("hca",),
    "hca_saturated": ("hca",),
    "index_scan_floor": ("index_scan",),
    "index_scan_prefill": ("index_scan",),
    "hbm_stream": ("index_scan",),
    "topk_decode": ("topk",),
    "topk_prefill": ("topk",),
    "topk_rate": ("topk",),
    "deepep_ll": ("dispatch_combine",),
    "deepep_normal": ("dispatch_combine",),
    "all_gather": ("dispatch_combine",),
    "reduce_scatter": ("dispatch_combine",),
    "ep_link": ("dispatch_combine",),
    "megamoe": ("moe", "dispatch_combine"),
    "mtp_projection": ("mtp_draft",),
    "h2d_copy": ("h2d",),
    "h2d_gather": ("h2d",),
    "eager_launch": ("overhead",),
    "constant_step": ("overhead", "attention_other", "projections"),
    "engine.cpu_step_us": ("cpu",),
    "engine.dp_gather_us": ("cpu",),
    "engine.cpu_cached_token_us": ("cpu",),
    "engine.cpu_request_us": ("cpu",),
    "engine.operations_per_layer": ("overhead",),
    "engine.sampler_operations": ("overhead",),
    "engine.prefill_graph_tokens": ("overhead",),
    "engine.operation_floor_us": ("overhead",),
}
# Parts that no operation measures: they follow from the others.
DERIVED = frozenset({"idle_wait"})


def parts_of(source: Source) -> tuple[str, ...]:
    """The parts that an entry's time is booked under."""
    if source.parts:
        return source.parts
    stem = source.op.partition(".")[0]
    return PARTS_OF_STEM.get(source.op) or PARTS_OF_STEM.get(stem) or (stem,)


def kinds_of_part(run: Run, part: str) -> tuple[str, ...]:
    """The provenance kinds of a part, in the order of `names.PROVENANCE`, then by name."""
    found = {source.kind for source in run.provenance if part in parts_of(source)}
    if not found and part in DERIVED:
        return ("derived",)
    order = list(PROVENANCE)
    return tuple(sorted(found, key=lambda kind: (order.index(kind) if kind in order else len(order), kind)))


def claim_of_part(run: Run, part: str) -> str:
    """A short text for a figure: the kind, or the weakest of several."""
    kinds = kinds_of_part(run, part)
    return f"partly {kinds[-1]}" if len(kinds) > 1 else kind_of_part(run, part)


def kind_of_part(run: Run, part: str) -> str:
    """One text for a table or a figure: the kinds, or that none is stated."""
    return " + ".join(kinds_of_part(run, part)) or "not stated"
