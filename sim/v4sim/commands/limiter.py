"""`v4sim limiter`: which resource limits: the same run again with a tenth more of each, ranked.

Every resource costs one replay. With --output the unchanged run is written too, as `v4sim replay` writes
it, and its report has the ranking as a section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from v4sim.commands import talk
from v4sim.commands.garbage import collected
from v4sim.commands.options import (
    Arrivals,
    Deployed,
    ForceRun,
    NoReport,
    ProfileName,
    Seed,
    Sessions,
    Settings,
    Trace,
    WindowText,
)
from v4sim.commands.prepare import prepare

NO_FEASIBLE_ANSWER = 1


@collected()
def limiter(
    trace: Trace,
    deployment: Deployed = None,
    profile: ProfileName = None,
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            metavar="NAME",
            help="ttft_warm_p95, ttft_warm_mean, ttft_p95, tpot_p95, e2e_p95, goodput or throughput.",
        ),
    ] = "ttft_warm_p95",
    step: Annotated[
        float,
        typer.Option(
            "--step", metavar="SHARE", min=0.01, max=1.0, help="How much more of each resource: 0.1 is 10 %."
        ),
    ] = 0.1,
    repeats: Annotated[
        int,
        typer.Option(
            "--repeats", metavar="N", min=1, help="Draws of the workload that figures are means of."
        ),
    ] = 3,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", min=1, help="Processes that share the replays.")
    ] = 1,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="RESOURCE", help="Ask for this resource; may be repeated [all]."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write the unchanged run there, ranking included."
        ),
    ] = None,
    sessions: Sessions = None,
    arrivals: Arrivals = None,
    window: WindowText = None,
    seed: Seed = 0,
    settings: Settings = None,
    no_report: NoReport = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ranking as JSON.")] = False,
    force: ForceRun = False,
) -> int:
    """Rank resources by how much a little more of each improves an objective. One replay per resource."""
    from dataclasses import replace

    from v4sim import rundir
    from v4sim.commands.manifest import manifest
    from v4sim.commands.replay import render_report, simulated
    from v4sim.commands.text import as_json_text
    from v4sim.errors import ConfigError
    from v4sim.limiter import draws_of, resources, study
    from v4sim.limiter import objective as named

    wanted, asked = named(objective), resources(only or [])
    if output is None and (no_report or force):
        raise ConfigError(
            "--no-report and --force are about the run directory: name one with -o, or drop them."
        )
    if output is not None:
        rundir.check_target(output, force)
    scenario = prepare(trace, deployment, profile, settings, sessions, arrivals, window, seed)
    draws = len(draws_of(scenario, repeats))
    if draws < repeats:
        talk.say("the trace's own arrival times are one draw of the workload: nothing is repeated")
    talk.say(f"simulating {scenario.table.n:,} calls, {draws * (1 + len(asked))} times")
    result, found = simulated(scenario)
    with talk.progress("resources") as advance:
        ranking = study(
            scenario,
            result,
            wanted,
            step=step,
            repeats=repeats,
            asked=asked,
            jobs=jobs,
            report=advance,
        )
    entry = rundir.plain(ranking.as_dict())
    if output is not None:
        found = replace(found, tree={**found.tree, "limiter": entry})
        finish = None if no_report else render_report
        rundir.write_run(result, found, manifest(scenario), output, force=force, finish=finish)
        talk.wrote(output)
    print(as_json_text(entry) if as_json else "\n".join(lines(entry)))
    return 0 if found.calls.completed.any() else NO_FEASIBLE_ANSWER


def lines(entry: Mapping[str, Any]) -> Iterator[str]:
    """The ranking for a person, from the `limiter` entry of a result."""
    yield (
        f"{entry['says']}: {_value(entry, entry['value'])} over {entry['calls']:,} calls "
        f"in {entry['repeats']} {'draw' if entry['repeats'] == 1 else 'draws'} of the workload"
    )
    yield verdict(entry)
    yield ""
    yield f"{'':<29}{'gain':>8}{'to':>11}  {'difference (80 %)':<24}{'better in':<11}change"
    for one in entry["resources"]:
        share = one["better_share"]
        still = one["difference_ci"] == [0.0, 0.0]  # the resource plays no part in this run
        better = "-" if share is None or still else f"{share:.0%}" + (" sure" if one["sure"] else "")
        yield (
            f"{one['title']:<29}{one['gain']:>+8.1%}{_value(entry, one['value']):>11}  "
            f"{_interval(entry, one):<24}{better:<11}{one['change']}"
        )
    yield ""
    yield "better in: share of resamples of the sessions; sure: 99 % of them, and every draw of the workload"
    if entry["caution"]:
        yield f"caution: {entry['caution']}"
    for one in entry["unasked"]:
        yield f"not asked: {one['title']}: {one['reason']}"


def verdict(entry: Mapping[str, Any]) -> str:
    for one in entry["resources"]:
        if one["name"] == entry["limiter"]:
            return f"limiter: {one['title']} ({one['change']}), {one['gain']:.1%} better"
    best = entry["resources"][0] if entry["resources"] else None
    if best is None or best["gain"] <= 0:
        return "limiter: none of these alone improves it"
    share = "" if best["better_share"] is None else f", in {best['better_share']:.0%} of resamples"
    return (
        f"limiter: none of these alone surely improves it; the best guess is {best['title']} "
        f"({best['change']}), {best['gain']:.1%} better{share}"
    )


def _value(entry: Mapping[str, Any], value: float | None) -> str:
    from v4sim.commands.summary import duration

    if value is None:
        return "not served"
    return duration(value) if entry["unit"] == "ms" else f"{value:.3g}/s"


def _interval(entry: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    if one["difference_ci"] in (None, [0.0, 0.0]):
        return "-"
    low, high = one["difference_ci"]
    if entry["unit"] == "ms":
        return f"{low:+,.0f} to {high:+,.0f} ms"
    return f"{low:+.3g} to {high:+.3g} {entry['unit']}"
