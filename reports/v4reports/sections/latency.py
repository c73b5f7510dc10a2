"""What a client waits for: first token by event class, resume after a tool, time between tokens."""

from __future__ import annotations

from v4reports import numbers
from v4reports.figures.ttft import objective, objective_form
from v4reports.names import EVENT_CLASS_MEANING, EVENT_CLASSES, RESUME_VIEWS, label, ordered
from v4reports.run import Dist, Run
from v4reports.sections.base import Section
from v4reports.tables import Cell, Table, distribution_table

CALL_TIMES = (
    ("queue_ms", "In queue", "sent to admitted"),
    ("e2e_ms", "Whole call", "sent to last token"),
)


def build(run: Run) -> Section:
    tables = []
    by_class = run.steady.ttft_ms
    objective_s = objective(run, "ttft_p95_s")
    if by_class:
        tables.append(
            distribution_table(
                "Time to first token by event class, steady window",
                [
                    (Cell(label(EVENT_CLASSES, name), EVENT_CLASS_MEANING.get(name, "")), by_class[name])
                    for name in ordered(EVENT_CLASSES, by_class)
                    if name not in RESUME_VIEWS
                ],
                first="Event class",
                limit_ms=None if objective_s is None else objective_s * 1e3,
            )
        )
    resume = resume_table(run)
    if resume is not None:
        tables.append(resume)
    tables += [table for table in (token_table(run), call_table(run)) if table is not None]
    return Section("latency", "Latency", _lead(run), ("waits", "itl"), tuple(tables))


def token_table(run: Run) -> Table | None:
    """Both forms of inter-token time and TPOT, each with what it is and what it covers."""
    one_scope = run.engine_scope == "steady window"
    apart = "" if one_scope else f" ({run.engine_scope})"
    entries = (
        ("ITL, bursts", f"gaps as the client sees them: tokens of one verify step come together{apart}"),
        ("ITL, divided", f"each step's time shared out over its tokens, so that sums are kept{apart}"),
        ("TPOT", f"(last − first) ÷ (tokens − 1), a value per call{'' if one_scope else ' (steady window)'}"),
    )
    dists = (run.steady.itl_burst_ms, run.steady.itl_ms, run.steady.tpot_ms)
    named = [(Cell(*entry), dist) for entry, dist in zip(entries, dists, strict=True) if dist is not None]
    if not named:
        return None
    return distribution_table(
        "Time between tokens" + (", steady window" if one_scope else ""),
        named,
        first="Quantity",
        limit_ms=objective(run, "itl_p95_ms"),
        judged=frozenset({"ITL, bursts" if objective_form(run) == "burst" else "ITL, divided"}),
    )


def call_table(run: Run) -> Table | None:
    named = [
        (Cell(name, meaning), dist)
        for key, name, meaning in CALL_TIMES
        if isinstance(dist := getattr(run.steady, key), Dist)
    ]
    return distribution_table("Time per call, steady window", named, first="Quantity") if named else None


def resume_table(run: Run) -> Table | None:
    """The calls that resumed after a tool, timed from each of the moments the run knows."""
    by_class = run.steady.ttft_ms
    named = [
        (Cell(name, meaning), by_class[key])
        for key, (name, meaning) in RESUME_VIEWS.items()
        if key in by_class
    ]
    if named and "resume_tool" in by_class:
        named.insert(0, (Cell("From sending", "the call reached the router"), by_class["resume_tool"]))
    if not named:
        return None
    return distribution_table(
        "Resume after a tool: time to first token, counted from", named, first="Counted from"
    )


def _lead(run: Run) -> str:
    by_class = run.steady.ttft_ms
    everything, resume = by_class.get("all"), by_class.get("resume_tool")
    if everything is None:
        return "No call of the steady window reached its first token."
    text = (
        f"Half of all calls have their first token after {numbers.ms(everything.p50)}, "
        f"95 % after {numbers.ms(everything.p95)}."
    )
    if resume is not None:
        text += f" After a tool it is {numbers.ms(resume.p50)} and {numbers.ms(resume.p95)}."
    return text + _between_tokens(run)


def _between_tokens(run: Run) -> str:
    """The figure that the page's head gives (TPOT), then the one that the objective is about (ITL)."""
    tpot, text = run.steady.tpot_ms, ""
    if tpot is not None:
        text += f" Then half of the calls get a token every {numbers.ms(tpot.p50)} or faster (median TPOT)."
    bursts = objective_form(run) == "burst"
    itl = run.steady.itl_burst_ms if bursts else run.steady.itl_ms
    if itl is not None:
        name = "ITL, bursts" if bursts else "ITL, divided"
        text += f" Single gaps ({name}, which the objective judges): p95 {numbers.ms(itl.p95)}."
    return text
