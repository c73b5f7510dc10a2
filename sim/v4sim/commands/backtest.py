"""`v4sim backtest`: predictions against published measurements, as a summary, JSON, a table and a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from v4sim.commands import talk
from v4sim.commands.garbage import collected

if TYPE_CHECKING:
    from v4sim.backtest.document import Backtest


@collected()
def backtest(
    targets: Annotated[
        str, typer.Argument(metavar="[TARGETS.json]", help="Measurements, schema 1 [those of the project].")
    ] = "built-in",
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="ID", help="Run this target; may be repeated.")
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, help="Seeds where something is random.")
    ] = 3,
    draws: Annotated[
        int,
        typer.Option("--draws", metavar="N", min=0, help="Profiles drawn from the residuals, for intervals."),
    ] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON; - for stdout.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option("--table", metavar="FILE", help="Write the table as Markdown.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write everything as an HTML page.")
    ] = None,
    notes: Annotated[
        Path | None, typer.Option("--notes", metavar="FILE", help="Findings to put into the table.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
) -> int:
    """Predict published measurements and say how far off the predictions are."""
    from v4sim.backtest.document import as_data, as_json, as_markdown
    from v4sim.backtest.run import backtest as run
    from v4sim.backtest.schema import read_targets
    from v4sim.errors import ConfigError
    from v4traces.files import whole_file

    file = read_targets(targets)
    stdout = json_file is not None and str(json_file) == "-"
    files = [path for path in (None if stdout else json_file, table, report) if path is not None]
    for path in files:
        if path.exists() and not force:
            raise ConfigError(f"{path} exists and is not overwritten without --force. Name another file.")
    written_notes = "" if notes is None else notes.read_text(encoding="utf-8")

    def started(name: str, number: int, total: int) -> None:
        talk.say(f"[{number + 1}/{total}] {name}")

    found = run(file, only=only or (), seeds=seeds, draws=draws, started=started)
    for path in files:
        if path == report:
            import v4reports

            v4reports.backtest(as_data(found), path, force)
        else:
            content = as_markdown(found, written_notes) if path == table else as_json(found)
            with whole_file(path, force=force) as partial:
                partial.write_text(content, encoding="utf-8")
        talk.wrote(path)
    print(as_json(found) if stdout else words(found), end="" if stdout else "\n")
    return 0 if found.replayed else 1


def words(found: Backtest) -> str:
    """The summary for a person: one line overall, one a metric, what was refused."""
    summary = found.summary()
    targets = summary["targets"]
    lines = [f"{targets['run']} of {targets['total']} targets run, {targets['refused']} refused", _header()]
    lines.append(_line("all", summary))
    lines += [_line(label, figures) for label, figures in summary["by_metric"].items()]
    lines.append(_line("(rebuilt)", summary["workload_reconstructed"]))
    lines.append(_line("(fit)", summary["fit"]))
    lines += _worst(found)
    lines += [f"refused {refusal.target}: {refusal.reason}" for refusal in found.refused]
    return "\n".join(lines)


def _worst(found: Backtest, count: int = 5) -> Sequence[str]:
    rows = sorted((row for row in found.rows if row.scored), key=lambda row: -abs(row.error or 0.0))
    return [
        f"worst: {row.target.id} {row.metric.label}: {row.error:+.1%}" for row in rows[:count] if row.error
    ]


def _header() -> str:
    return f"{'':<12}{'numbers':>8}{'predicted':>11}{'inside':>8}{'median':>9}{'p90':>9}{'bias':>9}"


def _line(label: str, figures: dict[str, Any]) -> str:
    def share(name: str, form: str = ".1%") -> str:
        return "-" if figures[name] is None else format(figures[name], form)

    return (
        f"{label:<12}{figures['count']:>8}{share('coverage'):>11}{figures['inside']:>8}"
        f"{share('median_abs_error'):>9}{share('p90_abs_error'):>9}{share('bias', '+.1%'):>9}"
    )
