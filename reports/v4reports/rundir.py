"""Reading a run directory: `result.json` and `calls.parquet` as they were written, typed.

Tolerant where the schema is optional (a key that is absent becomes None or empty, and the page says that
the figure is missing), strict where it is wrong (RunError naming file and key).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from v4reports.columns import read_calls, read_series
from v4reports.jsonview import View, read_object
from v4reports.limiter import read_limiter
from v4reports.numbers import percent
from v4reports.run import (
    Blocked,
    Dist,
    Headline,
    Metrics,
    Phase,
    Pool,
    Rank,
    Run,
    Source,
    Speculation,
)
from v4sim.errors import RunError

SCHEMA_VERSION = 1


def read_run(run_dir: Path) -> Run:
    """Read a run directory. Raises RunError when it is none or when its schema is not ours."""
    result = read_object(run_dir / "result.json")
    version = result.count("schema_version")
    if version != SCHEMA_VERSION:
        raise RunError(
            f"{run_dir / 'result.json'}: schema_version is {version}, this v4reports reads {SCHEMA_VERSION}. "
            "Replay the trace with this version, or report with the version that wrote the run."
        )
    return Run(
        manifest=result.child("manifest").data,
        headline=_headline(result.child("headline")),
        totals=result.child("totals").data,
        window_s=_span(result.child("window"), "start_s", "end_s"),
        engine_window_s=_span(result.child("window"), "engine_start_s", "engine_end_s"),
        window_rule=result.child("window").text("rule"),
        steady=_metrics(result.child("steady")),
        full=_metrics(result.child("full")),
        series=read_series(result.child("series")),
        calls=read_calls(run_dir / "calls.parquet"),
        provenance=tuple(_source(view) for view in result.children("provenance")),
        domain_warnings=result.texts("domain_warnings"),
        assumptions=result.texts("assumptions"),
        limiter=read_limiter(result.child("limiter")),
    )


def _headline(view: View) -> Headline:
    return Headline(
        sentence=view.text("sentence"),
        number=view.number("number"),
        unit=view.text("unit"),
        what_limits=view.texts("what_limits"),
        try_next=view.texts("try_next"),
    )


def _span(view: View, first: str, last: str) -> tuple[float, float] | None:
    start, end = view.number(first), view.number(last)
    return None if start is None or end is None else (start, end)


def _dist(view: View) -> Dist | None:
    """None for a distribution over nothing: it has no percentiles to show."""
    count = view.count("count")
    if not count:
        return None
    values = {name: view.number(name) for name in ("mean", "min", "max", "p50", "p90", "p95", "p99")}
    known = {name: value for name, value in values.items() if value is not None}
    if len(known) < len(values):
        return None
    return Dist(count=count, p50_ci=_interval(view, "p50_ci"), p95_ci=_interval(view, "p95_ci"), **known)


def _interval(view: View, key: str) -> tuple[float, float] | None:
    bounds = view.numbers(key)
    return (bounds[0], bounds[1]) if len(bounds) == 2 else None


def _dists(view: View, key: str) -> dict[str, Dist]:
    pairs = ((name, _dist(child)) for name, child in view.named(key).items())
    return {name: dist for name, dist in pairs if dist is not None}


def _metrics(view: View) -> Metrics:
    return Metrics(
        ttft_ms=_dists(view, "ttft_ms"),
        itl_burst_ms=_dist(view.child("itl_burst_ms")),
        itl_ms=_dist(view.child("itl_ms")),
        tpot_ms=_dist(view.child("tpot_ms")),
        e2e_ms=_dist(view.child("e2e_ms")),
        queue_ms=_dist(view.child("queue_ms")),
        step_ms=_dists(view, "step_ms"),
        throughput=view.number_map("throughput"),
        tokens=view.number_map("tokens"),
        hit=view.number_map("hit"),
        parts_s=view.number_map("parts_s"),
        parts_by_kind_s={
            kind: view.child("parts_by_kind_s").number_map(kind) for kind in view.child("parts_by_kind_s")
        },
        pools=tuple(_pool(pool) for pool in view.children("pools")),
        ranks=tuple(_rank(rank) for rank in view.children("ranks")),
        speculation=_speculation(view.child("speculation")) if "speculation" in view else None,
        blocked={
            reason: Blocked(calls=child.count("calls") or 0, time_s=child.number("time_s") or 0.0)
            for reason, child in view.named("blocked").items()
        },
        tasks={
            name: value
            for name in view.child("tasks")
            if name != "e2e_s" and (value := view.child("tasks").number(name)) is not None
        },
        task_e2e_s=_dist(view.child("tasks").child("e2e_s")),
        cost=view.number_map("cost"),
        calls=view.number_map("calls"),
    )


def _pool(view: View) -> Pool:
    return Pool(
        name=view.text("name"),
        replica=view.count("replica") or 0,
        rank=view.count("rank") or 0,
        capacity_tokens=view.number("capacity_tokens") or 0.0,
        peak_tokens=view.number("peak_tokens"),
        mean_tokens=view.number("mean_tokens"),
    )


def _rank(view: View) -> Rank:
    return Rank(
        replica=view.count("replica") or 0,
        rank=view.count("rank") or 0,
        busy_s=view.number("busy_s") or 0.0,
        attention_s=view.number("attention_s") or 0.0,
        decode_tokens=view.count("decode_tokens") or 0,
        prefill_tokens=view.count("prefill_tokens") or 0,
        utilisation=view.number("utilisation"),
    )


def _speculation(view: View) -> Speculation:
    phases = {}
    for name, child in view.named("by_phase").items():
        offered, accepted = child.numbers("offered"), child.numbers("accepted")
        if len(offered) != len(accepted):
            raise child.wrong("accepted", f"one number for each of the {len(offered)} positions offered")
        phases[name] = Phase(offered, accepted)
    return Speculation(
        kind=view.text("kind"),
        draft_tokens=view.count("draft_tokens") or 0,
        mean_accepted_length=view.number("mean_accepted_length"),
        by_phase=phases,
    )


def _source(view: View) -> Source:
    """Domain and residual may be a text, a number or a small object; the page shows them as text."""
    return Source(
        op=view.text("op"),
        kind=view.text("kind"),
        source=view.text("source"),
        domain=_shown(view.data.get("domain")),
        residual=_residual(view.data.get("residual")),
        parts=view.texts("parts"),
    )


def _residual(value: Any) -> str:
    """An error as a share of the value, alone or as median and p95, in per cent."""
    if isinstance(value, dict) and {"median", "p95"} <= value.keys():
        return f"median {percent(value['median'])}, p95 {percent(value['p95'])}"
    return percent(value) if isinstance(value, float) else _shown(value)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return "–".join(_shown(item) for item in value) if len(value) == 2 else ", ".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
