"""Rows of a run to a profile: every family of fits, with what could not be fitted and why.

A fit sees only rows that are usable and not held out; held-out rows fill the residuals. The domain of an
operation is exactly what was measured. The profile holds measured operations alone; `completed` puts it
over a reference profile, whose published operations stay where nothing was measured, each with its
provenance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from v4calib.draft import Draft
from v4calib.errors import CalibError
from v4calib.fits.bench import Bench
from v4calib.fits.collectives import add_collectives
from v4calib.fits.modules import add_modules
from v4calib.fits.scan import add_grid, add_scan
from v4calib.fits.tokens import add_links, add_tokens
from v4calib.fits.topk import add_topk
from v4calib.journal import Header
from v4calib.merging import merge
from v4calib.operations import OPERATIONS
from v4calib.provenance import provenance
from v4calib.rows import Row, combine
from v4sim.cost.profile import Profile

_KEY = "v4calib.measured"


@dataclass(frozen=True, slots=True)
class Fit:
    """A measured profile, its draft (with the comparisons), and what is missing."""

    profile: Profile
    draft: Draft
    skipped: dict[str, str]


def fit(header: Header, rows: Sequence[Row]) -> Fit:
    """Fit everything that the rows allow."""
    measured = combine(list(rows))
    if not measured:
        raise CalibError(
            "No row of this run has a time that counts: see the reasons in its rows (wrong results, no "
            "compilation, throttling)."
        )
    facts = header.facts
    bench, draft = Bench(measured, facts), Draft(facts.gpu)
    variants = sorted({m.variant for m in measured})
    kernels = sorted(
        {OPERATIONS[m.point.operation].kernel for m in measured if m.point.operation in OPERATIONS}
    )
    draft.provenances[_KEY] = provenance(header, rows, ", ".join(kernels), ", ".join(variants))
    for name in header.models:
        add_scan(draft, bench, name, _KEY)
        note = "a chunk in groups of eight tokens, FP8 keys"
        for engine in ("", "vllm."):  # one kernel of ours for both ways of holding keys
            named = f"index_scan_prefill.{engine}{name}"
            add_grid(draft, bench, "index_scan_prefill", named, _KEY, note, name)
        add_topk(draft, bench, name, _KEY)
        add_modules(draft, bench, name, _KEY)
        add_tokens(draft, bench, name, _KEY)
    add_links(draft, bench, _KEY)
    add_collectives(draft, bench, _KEY)
    stand_in = facts.kind == "cpu"
    name = f"cpu-as-{facts.gpu}" if stand_in else f"{facts.gpu}-measured"
    words = (
        f"torch references timed on a CPU, standing in for {facts.gpu}: it proves the chain from rows to a "
        "replay and says nothing about a GPU."
        if stand_in
        else f"Kernels measured on {facts.name} with the {header.grid} grid."
    )
    return Fit(draft.finished(name, words, "v4calib fit"), draft, dict(bench.skipped))


def completed(fitted: Fit, base: Profile) -> Profile:
    """The measured operations over a reference profile."""
    return merge(base, fitted.profile, stand_in=True)
