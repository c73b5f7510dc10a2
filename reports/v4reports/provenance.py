"""What the seconds of each part rest on, from the run's provenance entries.

An entry says itself which parts it feeds (`parts`), or its operation's name does: `moe.fp8.sglang...` feeds
the part `moe`. A part with several kinds shows all of them, the weakest claim last.
"""

from __future__ import annotations

from v4reports.names import PROVENANCE
from v4reports.run import Run, Source

# Beginnings of operation names that are not the part their time is booked under; the longest one counts.
PARTS_OF_PREFIX: dict[str, tuple[str, ...]] = {
    "csa": ("attention_other",),
    "hca": ("hca", "swa"),  # the HCA module stands for layers with a sliding window alone
    "hca_context": ("hca",),
    "hca_saturated": ("hca",),
    "index_scan": ("index_scan",),
    "hbm_stream": ("index_scan",),
    "topk": ("topk",),
    "deepep": ("dispatch_combine",),
    "all_gather": ("dispatch_combine",),
    "reduce_scatter": ("dispatch_combine",),
    "ep_link": ("dispatch_combine",),
    "megamoe": ("moe", "dispatch_combine"),
    "mtp": ("mtp_draft",),
    "h2d": ("h2d",),
    "eager_launch": ("overhead",),
    "constant_step": ("overhead", "attention_other", "projections"),
    "engine.": ("overhead",),
    "engine.cpu": ("cpu",),
    "engine.dp_gather": ("cpu",),
}
# Parts that no operation measures: they follow from the others.
DERIVED = frozenset({"idle_wait"})


def parts_of(source: Source) -> tuple[str, ...]:
    """The parts that an entry's time is booked under."""
    if source.parts:
        return source.parts
    prefix = max((p for p in PARTS_OF_PREFIX if source.op.startswith(p)), key=len, default=None)
    return PARTS_OF_PREFIX[prefix] if prefix is not None else (source.op.partition(".")[0],)


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
