"""A backtest from beginning to end: every target of a file is run, or refused with its reason.

Targets that share their source with an engine constant are run a second time with that constant at the value
that is left without the source (nothing: the cost is not charged), for the leave-one-source-out error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from v4sim.backtest.document import Backtest
from v4sim.backtest.intervals import Interval, intervals
from v4sim.backtest.replay import CostOf, Replayed, builtin_cost, replay
from v4sim.backtest.schema import Refusal, Target, TargetFile
from v4sim.backtest.score import Row, refused_rows, rows_of, shared_source
from v4sim.config import Deployment
from v4sim.errors import ConfigError, V4Error

Started = Callable[[str, int, int], None]  # target id, number, of how many


def backtest(
    file: TargetFile,
    *,
    only: Sequence[str] = (),
    seeds: int = 3,
    draws: int = 0,
    cost_of: CostOf | None = None,
    started: Started | None = None,
) -> Backtest:
    """Run a targets file, or the targets named in `only`."""
    file = chosen(file, only)
    cost_of = cost_of or builtin_cost()
    rows: list[Row] = []
    replayed: dict[str, Replayed] = {}
    refused: list[Refusal] = list(file.refused)
    bands: dict[tuple[str, str], Interval] = {}
    for number, target in enumerate(file.targets):
        if started is not None:
            started(target.id, number, len(file.targets))
        try:
            found = replay(target, cost_of=cost_of, seeds=range(seeds))
            constant = shared_source(target)
            lone = None
            if constant is not None:
                lone = replay(target, cost_of=cost_of, seeds=range(1), change=_without(constant))
            if draws:
                drawn = intervals(target, draws)
                bands |= {(target.id, label): band for label, band in drawn.items()}
        except V4Error as error:
            refused.append(Refusal(target.id, str(error), len(target.metrics)))
            rows += refused_rows(target, str(error))
            continue
        replayed[target.id] = found
        rows += rows_of(found, lone)
    return Backtest(file, tuple(rows), replayed, tuple(refused), seeds, bands)


def chosen(file: TargetFile, only: Sequence[str]) -> TargetFile:
    """The targets named in `only`; all of them if it is empty."""
    if not only:
        return file
    known = [t.id for t in file.targets] + [r.target for r in file.refused]
    unknown = [name for name in only if name not in known]
    if unknown:
        raise ConfigError(f"--only {unknown[0]}: {file.name} has no such target. It has {', '.join(known)}.")
    return TargetFile(
        file.name,
        tuple(t for t in file.targets if t.id in only),
        tuple(r for r in file.refused if r.target in only),
    )


def _without(constant: str) -> Callable[[Deployment], Deployment]:
    """A deployment for which an engine constant is not charged."""

    def change(deployment: Deployment) -> Deployment:
        if constant not in type(deployment.engine).model_fields:
            raise ConfigError(f"engine constant {constant!r} is no option of a deployment.")
        return deployment.model_copy(update={"engine": deployment.engine.model_copy(update={constant: 0.0})})

    return change


__all__ = ["Backtest", "Target", "backtest", "chosen"]
