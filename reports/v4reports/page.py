"""The head of a page: title, facts, sentence, number, tally; and the template environment.

Autoescape is on for everything. Only figures are trusted markup, and they escape their own text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from v4reports import numbers
from v4reports.figures.base import Absent, Chart
from v4reports.figures.ttft import objective, objective_form
from v4reports.run import Run
from v4reports.sections.base import sentence, typeset

if TYPE_CHECKING:
    from jinja2 import Environment


# Units that stand right behind the large number; what follows them is a description.
SHORT_UNITS = ("s", "ms", "min", "h", "GiB", "×")


@dataclass(frozen=True, slots=True)
class Head:
    """What stands above the sections, as texts."""

    deployment: str
    facts: tuple[str, ...]
    sentence: str
    number: str
    unit: str
    chart: Any
    what_limits: tuple[str, ...]
    try_next: tuple[str, ...]
    tally: tuple[tuple[str, str], ...]
    missed: str
    warnings: str
    program: str


def head_of(run: Run, chart: Any) -> Head:
    number, unit = headline_number(run)
    count = len(run.domain_warnings)
    return Head(
        deployment=deployment_name(run),
        facts=facts(run),
        sentence=typeset(run.headline.sentence) or f"{deployment_name(run)}: the run states no headline.",
        number=number,
        unit=unit,
        chart=chart,
        what_limits=what_limits(run),
        try_next=tuple(sentence(text) for text in run.headline.try_next),
        tally=tally(run),
        missed=missed(run),
        warnings=f"{count} domain {'warning' if count == 1 else 'warnings'}" if count else "",
        program=f"v4sim {_text(run.manifest, 'v4sim_version')}".strip(),
    )


def what_limits(run: Run) -> tuple[str, ...]:
    """The counterfactual first, where it was asked; then what the run itself shows."""
    asked = () if run.limiter is None else (run.limiter.sentence,)
    return tuple(sentence(text) for text in (*asked, *run.headline.what_limits))


def title_of(run: Run) -> str:
    """What the browser's tab says: deployment first, because tabs are cut at the right."""
    trace = _name(run.manifest, "trace")
    return " · ".join(part for part in (deployment_name(run), trace, "v4sim report") if part)


def deployment_name(run: Run) -> str:
    return _name(run.manifest, "deployment") or "A deployment without a name"


def headline_number(run: Run) -> tuple[str, str]:
    """The number with its unit. A dollar sign stands before the number, every other unit after it."""
    value, unit = run.headline.number, run.headline.unit
    if value is None:
        return "", ""
    if unit.startswith("$"):
        return numbers.dollars(value), unit.removeprefix("$").strip(" /")
    if unit.startswith("%"):
        return f"{numbers.digits(value)} %", unit.removeprefix("%").strip()
    text = numbers.digits(value) if abs(value) < 1e4 else numbers.scaled(value)
    first, _, rest = unit.partition(" ")
    return (f"{text} {first}", rest) if first in SHORT_UNITS else (text, unit)


def facts(run: Run) -> tuple[str, ...]:
    """Trace, profile and seed, for the line under the name."""
    out = []
    for key, word in (("trace", "trace"), ("profile", "profile")):
        name = _name(run.manifest, key)
        if name:
            out.append(f"{word} {name}")
    seed = run.manifest.get("seed")
    if isinstance(seed, int):
        out.append(f"seed {seed}")
    if run.window_s is not None:
        out.append(f"steady window {numbers.seconds(run.window_s[1] - run.window_s[0])}")
    return tuple(out)


def tally(run: Run) -> tuple[tuple[str, str], ...]:
    """Completed of total always; the other outcomes when they occur."""
    calls = run.full.calls
    out = []
    if "completed" in calls and "injected" in calls:
        out.append(
            (numbers.integer(calls["completed"]), f"of {numbers.integer(calls['injected'])} calls completed")
        )
    out += [
        (numbers.integer(calls[name]), name)
        for name in ("rejected", "aborted", "running", "loading", "queued")
        if calls.get(name)
    ]
    ratio, cost = run.steady.hit.get("token_ratio"), run.steady.cost.get("amortised_per_task")
    if ratio is not None:
        out.append((numbers.percent(ratio), "of prompt tokens from cache"))
    if cost is not None:
        out.append((numbers.dollars(cost), "per task"))
    rate = run.steady.throughput.get("output_tokens_per_s")
    if rate is not None:
        out.append((numbers.scaled(rate), "output tokens/s"))
    return tuple(out)


def missed(run: Run) -> str:
    """What misses the deployment's objective and by how much; empty where nothing does."""
    itl, form = run.steady.itl_ms, "divided"
    if objective_form(run) == "burst":
        itl, form = run.steady.itl_burst_ms, "bursts"
    limit_s, ttft = objective(run, "ttft_p95_s"), run.steady.ttft_ms.get("all")
    out = []
    for name, dist, limit_ms in (
        ("First token", ttft, None if limit_s is None else limit_s * 1e3),
        (f"Between tokens ({form})", itl, objective(run, "itl_p95_ms")),
    ):
        if dist is not None and limit_ms is not None and dist.p95 > limit_ms:
            out.append(f"{name}: p95 {numbers.ms(dist.p95)}, the objective is {numbers.tick_ms(limit_ms)}")
    return "; ".join(out)


def environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def trusted(figure: Chart | Absent) -> Any:
    """A figure for the template, its SVG marked as markup."""
    if isinstance(figure, Absent):
        return figure
    from dataclasses import replace

    from markupsafe import Markup

    return replace(figure, svg=Markup(figure.svg), wide_svg=Markup(figure.wide_svg))


def _name(manifest: Mapping[str, Any], key: str) -> str:
    """The name of a thing in the manifest, which may be a text or an object with a `name`."""
    value = manifest.get(key)
    if isinstance(value, Mapping):
        return _text(value, "name")
    return value if isinstance(value, str) else ""


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""
