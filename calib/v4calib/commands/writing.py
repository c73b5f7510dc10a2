"""From rows to a written profile, with the words about it: shared by `run` and `fit`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from v4calib.journal import Header
    from v4calib.rows import Row


def write_profile(
    header: Header,
    rows: Sequence[Row],
    output: Path,
    base: str | None,
    *,
    force: bool,
    measured_only: bool = False,
) -> None:
    """Fit, complete, write; the path and the agreement table go to stdout, all else to stderr."""
    from v4calib.agreement import agreement, table
    from v4calib.commands.options import say, write_whole
    from v4calib.fit import completed, fit
    from v4calib.summary import achieved, outcome
    from v4sim.cost.profile import dump_profile, load_profile

    for line in outcome(rows):
        say(line)
    fitted = fit(header, rows)
    for name, reason in sorted(fitted.skipped.items()):
        say(f"not fitted: {name}: {reason}")
    reference = load_profile(base or header.facts.gpu)
    profile = fitted.profile if measured_only else completed(fitted, reference)
    write_whole(output, dump_profile(profile), force)
    for row in achieved(rows, header.facts):
        say(
            f"achieved: {row.operation} {row.fraction:.0%} of its {row.leg} ceiling "
            f"({row.us:.4g} us, {row.point})"
        )
    if header.facts.kind != "cpu":  # a CPU agrees with no GPU, and need not
        print(table(agreement(fitted.profile, reference), "measured", reference.name))
    print(output)
