"""One run directory becomes one HTML page. This file only sequences: read, draw, fill in, write."""

from __future__ import annotations

from pathlib import Path


def render(run_dir: Path, out: Path | None = None, force: bool = False) -> Path:
    """Write the report of `run_dir` and return its path (`report.html` in it, or `out`).

    The page needs no network and no script. Raises RunError when the directory holds no readable run, or when
    the file exists and `force` is not set; in both cases nothing is written.
    """
    from v4reports import figures, page, sections
    from v4reports.figures.canvas import house_style
    from v4reports.output import check_free, write_page
    from v4reports.rundir import read_run

    target = run_dir / "report.html" if out is None else out
    run = read_run(run_dir)
    check_free(target, force=force)
    body = sections.build_all(run)
    names = ["ttft", *(name for section in body for name in section.figures)]
    with house_style():
        drawn = {name: page.trusted(figures.draw(name, run)) for name in names}
    html = (
        page.environment()
        .get_template("report.html")
        .render(title=page.title_of(run), head=page.head_of(run, drawn["ttft"]), sections=body, figures=drawn)
    )
    write_page(target, html, force=force)
    return target
