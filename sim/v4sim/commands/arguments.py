"""Text of the command line turned into values, with what was assumed where nothing was given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from v4sim.errors import ConfigError

if TYPE_CHECKING:
    from v4sim.workload import WorkloadOptions

FOREVER_NS = 1 << 60


def workload(sessions: int | None, arrivals: str | None, window: str | None) -> WorkloadOptions:
    """`--sessions`, `--arrivals` and `--window` as one value; what is left out stays open."""
    from v4sim.metrics.window import requested_window
    from v4sim.workload import WorkloadOptions

    if window is not None:
        requested_window(window, FOREVER_NS)  # a window that is none is refused before the simulation
    kind, rate_per_s = _arrivals(arrivals)
    return WorkloadOptions(sessions=sessions, arrivals=kind, rate_per_s=rate_per_s, window=window)


def _arrivals(text: str | None) -> tuple[str | None, float | None]:
    """`trace` or `poisson:RATE`; the rate itself is checked where it is used."""
    if text is None or text == "trace":
        return text, None
    kind, colon, rate = text.partition(":")
    if kind != "poisson" or not colon:
        raise ConfigError(
            f"--arrivals {text!r} is neither `trace` (the times in the trace) nor `poisson:RATE` "
            "(RATE root sessions per second). Write one of them."
        )
    try:
        return kind, float(rate)
    except ValueError:
        raise ConfigError(
            f"--arrivals {text!r}: {rate!r} is no number of sessions per second. Write poisson:0.5, say."
        ) from None


def run_folder(output: Path | None, trace: Path) -> Path:
    """Where a run goes when nothing is said: beside where the command was given, named after the trace."""
    return Path(f"{trace.stem}-run") if output is None else output
