"""The counterfactual runs: each resource alone a little larger, ranked by what that does to the objective.

Common random numbers: same trace, same seed, and draws that are addressed by call, so two runs differ by the
change alone. A schedule is chaotic all the same: a change too small to matter still reorders calls, which can
move a p95 by more than the change itself. Two things hold that down. Each run is made in several draws of
the workload (another order of the sessions, or other arrival times) and figures are means over them. And
the *difference* is resampled over sessions, the same ones in every run (80 % intervals,
`metrics.bootstrap`); an improvement is sure where nearly all resamples and every draw have it.

Left out: what two resources do together, and the error of the profile (see `Profile.draw`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from v4sim.errors import ConfigError, V4Error
from v4sim.limiter.execute import run_all
from v4sim.limiter.objective import Objective
from v4sim.limiter.resources import RESOURCES, Resource, Unasked, resources
from v4sim.limiter.sample import P95, Reading, Sample
from v4sim.metrics.bootstrap import Interval, percentile_interval

if TYPE_CHECKING:
    from v4sim.results import RunResult
    from v4sim.scenario import Scenario

STEP = 0.10
REPEATS = 3
# A dozen resources are asked at once: at nine of ten resamples one of them would look sure by luck.
SURE = 0.99
# Calls beyond a percentile, below which it is the word of single calls.
FEWEST_BEYOND = 10
Report = Callable[[float, float], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The objective with more of one resource. `gain` is its relative improvement, 0.05 = 5 % better."""

    resource: Resource
    change: str
    value: float
    gain: float
    difference: float  # value less the unchanged one, in the objective's unit
    interval: Interval | None  # of the difference
    better_share: float | None  # of the resamples
    worst_gain: float  # of the single draws of the workload

    @property
    def is_sure(self) -> bool:
        return self.worst_gain > 0 and self.better_share is not None and self.better_share >= SURE


@dataclass(frozen=True, slots=True)
class Study:
    """All outcomes, the best first, and the resources that could not be asked for, with the reason."""

    objective: Objective
    step: float
    repeats: int
    calls: int  # that the figure is of, in all draws together
    value: float
    outcomes: tuple[Outcome, ...]
    unasked: tuple[tuple[Resource, str], ...]

    @property
    def limiter(self) -> Outcome | None:
        """The best of those that surely improve the objective."""
        return next((one for one in self.outcomes if one.is_sure), None)

    @property
    def caution(self) -> str | None:
        """What a reader must know of the figure itself."""
        beyond = max(1, round(self.calls / self.repeats * (1 - P95)))
        if self.objective.figure != "p95" or beyond >= FEWEST_BEYOND:
            return None
        return (
            f"the p95 of {self.calls // self.repeats} calls a draw is the word of {beyond} of them; take "
            "more sessions, a wider window (--window), or the mean (--objective ttft_warm_mean)"
        )

    def as_dict(self) -> dict[str, Any]:
        """The `limiter` entry of result.json."""
        return {
            "objective": self.objective.name,
            "says": self.objective.says,
            "unit": self.objective.unit,
            "less_is_better": self.objective.is_time,
            "step": self.step,
            "repeats": self.repeats,
            "calls": self.calls,
            "value": self.value,
            "caution": self.caution,
            "limiter": None if self.limiter is None else self.limiter.resource.name,
            "resources": [
                {
                    "name": one.resource.name,
                    "title": one.resource.title,
                    "change": one.change,
                    "value": one.value,
                    "gain": one.gain,
                    "difference": one.difference,
                    "difference_ci": one.interval,
                    "better_share": one.better_share,
                    "worst_gain": one.worst_gain,
                    "sure": one.is_sure,
                }
                for one in self.outcomes
            ],
            "unasked": [
                {"name": resource.name, "title": resource.title, "reason": reason}
                for resource, reason in self.unasked
            ],
        }


def study(
    scenario: Scenario,
    base: RunResult,
    objective: Objective,
    *,
    step: float = STEP,
    repeats: int = REPEATS,
    asked: Sequence[Resource] = RESOURCES,
    jobs: int = 1,
    report: Report | None = None,
) -> Study:
    """Run `scenario` again with `step` more of each resource. `base` is the unchanged run.

    `jobs` processes share the runs; the answer is the same. `report` is called with (runs done, runs in all).
    Raises ConfigError where there is nothing to improve.
    """
    if not 0.0 < step <= 1.0:
        raise ConfigError(f"a step of {step:g} is no share to add to a resource; give one like 0.1.")
    if repeats < 1 or jobs < 1:
        raise ConfigError(f"{repeats} repeats on {jobs} processes: at least one of each is needed.")
    draws = draws_of(scenario, repeats)
    count = _Count(len(draws) * (1 + len(asked)) - 1, report)
    bases = [base, *run_all(_run, draws[1:], jobs, count.one_more)]
    samples = [Sample.of(draw, result, objective) for draw, result in zip(draws, bases, strict=True)]
    before = [sample.read(result) for sample, result in zip(samples, bases, strict=True)]
    tasks = [
        _Task(resource.name, draw, sample, step)
        for resource in asked
        for draw, sample in zip(draws, samples, strict=True)
    ]
    answers = run_all(_answer, tasks, jobs, count.one_more)
    outcomes, unasked = [], []
    for number, resource in enumerate(asked):
        own = answers[number * len(draws) : (number + 1) * len(draws)]
        refused = [answer for answer in own if isinstance(answer, Unasked)]
        if refused:
            unasked.append((resource, refused[0].reason))
        else:
            after = [answer for answer in own if isinstance(answer, _Answer)]
            outcomes.append(_outcome(resource, objective, before, after))
    outcomes.sort(key=lambda one: -one.gain)  # stable: ties in the order of the resources
    calls = sum(len(sample.rows) for sample in samples)
    value = float(np.mean([reading.value for reading in before]))
    return Study(objective, step, len(draws), calls, value, tuple(outcomes), tuple(unasked))


@dataclass(slots=True)
class _Count:
    """Runs done, for whoever watches."""

    total: int
    report: Report | None
    done: int = 0

    def one_more(self) -> None:
        self.done += 1
        if self.report is not None:
            self.report(self.done, self.total)


@dataclass(frozen=True, slots=True)
class _Task:
    """One counterfactual run and the sample that reads it. The resource goes by its name: code cannot."""

    resource: str
    scenario: Scenario
    sample: Sample
    step: float


@dataclass(frozen=True, slots=True)
class _Answer:
    change: str
    reading: Reading


def _run(scenario: Scenario) -> RunResult:
    return scenario.run()


def _answer(task: _Task) -> _Answer | Unasked:
    (resource,) = resources([task.resource])
    variant = resource.more(task.scenario, task.step)
    if isinstance(variant, Unasked):
        return variant
    try:
        return _Answer(variant.change, task.sample.read(variant.scenario.run()))
    except V4Error as error:  # its options contradict more of it
        return Unasked(str(error))


def draws_of(scenario: Scenario, repeats: int) -> list[Scenario]:
    """The scenario as it is, and other draws of the same workload; one alone where nothing is drawn."""
    workload = scenario.workload
    if workload.arrivals == "trace":
        return [scenario]
    if workload.arrivals == "poisson":
        return [replace(scenario, seed=scenario.seed + number) for number in range(repeats)]
    shuffled = [replace(workload, shuffle=number) for number in range(1, repeats)]
    return [scenario, *(replace(scenario, workload=other) for other in shuffled)]


def _outcome(
    resource: Resource, objective: Objective, before: list[Reading], answers: list[_Answer]
) -> Outcome:
    after = [answer.reading for answer in answers]
    old, new = (float(np.mean([reading.value for reading in side])) for side in (before, after))
    pairs = [
        new.draws - old.draws
        for old, new in zip(before, after, strict=True)
        if old.draws is not None and new.draws is not None
    ]
    interval = share = None
    if len(pairs) == len(before):
        moved = np.mean(pairs, axis=0)
        moved = moved[np.isfinite(moved)]  # a resample may have none of the calls
        interval = percentile_interval(moved)
        share = float(np.mean(moved < 0 if objective.is_time else moved > 0))
    elif np.isinf(old) and np.isfinite(new):
        share = 1.0  # calls that were not served at all now are
    gains = [_gain(objective, a.value, b.value) for a, b in zip(before, after, strict=True)]
    gain = _gain(objective, old, new)
    return Outcome(resource, answers[0].change, new, gain, new - old, interval, share, min(gains))


def _gain(objective: Objective, before: float, after: float) -> float:
    """The improvement as a share of what there was; served at last counts as all of it."""
    if before == after:
        return 0.0
    if np.isinf(before) or not before:
        return 1.0
    if np.isinf(after):
        return -1.0
    return 1.0 - after / before if objective.is_time else after / before - 1.0
