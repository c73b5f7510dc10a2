"""Two runs side by side in one HTML page: what changed in the results, and what changed in the inputs.

Differences are B against A. A difference of results means something only if the inputs differ in what was
meant to differ, so the page says first whether trace, seed, workload and version agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from v4reports import numbers
from v4reports.figures.change import Change, draw_changes
from v4reports.names import EVENT_CLASSES, KINDS, PARTS, RESUME_VIEWS, label, ordered
from v4reports.run import Dist, Metrics, Run
from v4reports.sections.window import comparison_rows, shown
from v4reports.tables import Cell, Column, Table, flattened, row, text_columns

VIEWS = {key: f"Resume after tool, {name[:1].lower()}{name[1:]}" for key, (name, _) in RESUME_VIEWS.items()}
MOST_UNLIKE = 1.5  # windows whose lengths differ by more hardly see the same load
SAME = 0.005  # relative changes below half a per cent are called the same


def compare(run_a: Path, run_b: Path, out: Path | None = None, force: bool = False) -> Path:
    """Write the comparison of two run directories and return its path (`compare.html` in `run_b`, or `out`).

    Raises RunError when one of them holds no readable run, or when the file exists and `force` is not set.
    """
    from v4reports import page
    from v4reports.figures.canvas import house_style
    from v4reports.output import check_free, write_page
    from v4reports.rundir import read_run

    target = run_b / "compare.html" if out is None else out
    a, b = read_run(run_a), read_run(run_b)
    check_free(target, force=force)
    found = changes(a.steady, b.steady)
    with house_style():
        chart = page.trusted(draw_changes(found))
    html = (
        page.environment()
        .get_template("compare.html")
        .render(
            title=f"{page.deployment_name(a)} against {page.deployment_name(b)} · v4sim comparison",
            runs=[page.head_of(run, None) for run in (a, b)],
            sentence=sentence(a.steady, b.steady),
            tally=tally(found),
            chart=chart,
            caution=caution(a, b),
            tables=[
                table for table in (result_table(a, b), ttft_table(a, b), parts_table(a, b)) if table.rows
            ],
            inputs=input_table(a, b),
        )
    )
    write_page(target, html, force=force)
    return target


def changes(a: Metrics, b: Metrics) -> list[Change]:
    """Relative change of every quantity that both runs know and that is not zero in A."""
    found = []
    for (name, better, old, _), (_, _, new, _) in zip(comparison_rows(a), comparison_rows(b), strict=True):
        if old is None or new is None or old == 0:
            continue
        ratio = new / old - 1
        found.append(Change(name, ratio, verdict(ratio, better)))
    return found


def verdict(ratio: float, better: str) -> str:
    if abs(ratio) < SAME:
        return "same"
    return "better" if (ratio > 0) == (better == "higher") else "worse"


# What the sentence speaks of, in the words of a sentence; of each group the first that both runs know.
LEADING = (
    (
        ("TTFT, resume after tool, p95", "the p95 time to first token after a tool"),
        ("TTFT, all calls, p95", "the p95 time to first token"),
    ),
    (("Cost per task, amortised", "the cost per task"),),
)


def sentence(a: Metrics, b: Metrics) -> str:
    """The page's first sentence: first-token time and cost per task, from A to B."""
    old = {name: (value, kind) for name, _, value, kind in comparison_rows(a)}
    new = {name: value for name, _, value, _ in comparison_rows(b)}
    said = []
    for group in LEADING:
        for name, words in group:
            before, kind = old[name]
            after = new[name]
            if before is not None and after is not None:
                said.append(f"{words} goes from {shown(before, kind)} to {shown(after, kind)}")
                break
    if not said:
        return "The two runs share neither a time to first token nor a cost per task."
    return f"From A to B, {' and '.join(said)}."


def tally(found: Sequence[Change]) -> str:
    """How many quantities got better and worse."""
    counts = [
        f"{sum(change.verdict == word for change in found)} {word}" for word in ("better", "worse", "same")
    ]
    return f"Of {len(found)} quantities that both runs know: {', '.join(counts)}."


def caution(a: Run, b: Run) -> tuple[str, ...]:
    """Inputs other than the deployment that differ, so that nobody compares apples with pears unawares."""
    out = []
    for key, word in (
        ("trace", "traces"),
        ("workload", "workloads"),
        ("seed", "seeds"),
        ("v4sim_version", "versions of v4sim"),
    ):
        if a.manifest.get(key) != b.manifest.get(key):
            out.append(f"The {word} differ.")
    lengths = [run.window_s[1] - run.window_s[0] for run in (a, b) if run.window_s is not None]
    if len(lengths) == 2 and max(lengths) > MOST_UNLIKE * min(lengths):
        shown_lengths = " and ".join(numbers.seconds(length) for length in lengths)
        out.append(f"The steady windows differ in length: {shown_lengths}.")
    return tuple(out)


def result_table(a: Run, b: Run) -> Table:
    rows = []
    for (name, better, old, kind), (_, _, new, _) in zip(
        comparison_rows(a.steady), comparison_rows(b.steady), strict=True
    ):
        if old is None and new is None:
            continue
        ratio = new / old - 1 if old and new is not None else None
        note = "" if ratio is None else verdict(ratio, better)
        rows.append(row(name, shown(old, kind), shown(new, kind), Cell(numbers.signed_percent(ratio), note)))
    columns = (Column("Quantity", numeric=False), Column("A"), Column("B"), Column("Change"))
    return Table("Results, steady windows", columns, tuple(rows))


def ttft_table(a: Run, b: Run) -> Table:
    old, new = a.steady.ttft_ms, b.steady.ttft_ms
    largest = max((dist.p95 for dist in [*old.values(), *new.values()]), default=0.0) / 1e3

    def shown_ms(value: float | None) -> str:
        return numbers.seconds_like(None if value is None else value / 1e3, largest)

    rows = [
        row(
            label(EVENT_CLASSES | VIEWS, name),
            *(shown_ms(dist.p50 if dist else None) for dist in (old.get(name), new.get(name))),
            *(shown_ms(dist.p95 if dist else None) for dist in (old.get(name), new.get(name))),
            _interval_words(old.get(name), new.get(name)),
        )
        for name in ordered(EVENT_CLASSES, dict.fromkeys([*old, *new]))
    ]
    columns = (
        Column("Event class", numeric=False),
        Column("p50", "A"),
        Column("p50", "B"),
        Column("p95", "A"),
        Column("p95", "B"),
        Column("p95", "intervals"),
    )
    notes = ("Intervals: 80 %, sessions resampled. Where they overlap, the difference may be noise.",)
    return Table("Time to first token, steady windows", columns, tuple(rows), notes=notes)


def parts_table(a: Run, b: Run) -> Table:
    """Mean time of each part in one step, so that runs of different length compare."""
    rows = []
    for kind in KINDS:
        counts = [run.steady.step_ms[kind].count if kind in run.steady.step_ms else 0 for run in (a, b)]
        seconds = [run.steady.parts_by_kind_s.get(kind, {}) for run in (a, b)]
        for part in ordered(PARTS, dict.fromkeys([*seconds[0], *seconds[1]])):
            old, new = (
                values.get(part, 0.0) / count if count else None
                for values, count in zip(seconds, counts, strict=True)
            )
            if old or new:
                ratio = new / old - 1 if old and new is not None else None
                name = f"{label(KINDS, kind)}: {label(PARTS, part)}"
                rows.append(
                    row(name, numbers.seconds(old), numbers.seconds(new), numbers.signed_percent(ratio))
                )
    columns = (
        Column("Part", numeric=False),
        Column("A", "per step"),
        Column("B", "per step"),
        Column("Change"),
    )
    return Table("Time of a step by part, steady windows", columns, tuple(rows))


def input_table(a: Run, b: Run) -> Table:
    """Keys of the manifest, deployment included, whose values differ."""
    old, new = dict(flattened(a.manifest)), dict(flattened(b.manifest))
    rows = tuple(
        row(key, old.get(key, "absent"), new.get(key, "absent"))
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    )
    return Table("Inputs that differ", text_columns("Key", "A", "B"), rows, stacked=True)


def _interval_words(old: Dist | None, new: Dist | None) -> str:
    if old is None or new is None or old.p95_ci is None or new.p95_ci is None:
        return numbers.UNKNOWN
    apart = old.p95_ci[1] < new.p95_ci[0] or new.p95_ci[1] < old.p95_ci[0]
    return "apart" if apart else "overlap"
