"""Arguments and options that several subcommands take, written once so that they read alike everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Trace = Annotated[Path, typer.Argument(help="Trace to replay (.parquet, made by `v4traces import`).")]
Deployed = Annotated[
    str | None,
    typer.Option("--deployment", "-d", metavar="PRESET|FILE", help="Preset name or .toml file."),
]
ProfileName = Annotated[
    str | None,
    typer.Option("--profile", "-p", metavar="NAME|FILE", help="Calibration profile [the GPU's own]."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one key of the deployment; may be repeated."),
]
Sessions = Annotated[
    int | None, typer.Option("--sessions", metavar="N", help="Closed loop: keep N sessions alive.")
]
Arrivals = Annotated[
    str | None,
    typer.Option(
        "--arrivals", metavar="trace|poisson:RATE", help="Open loop: the trace's times, or RATE sessions/s."
    ),
]
WindowText = Annotated[
    str | None,
    typer.Option("--window", metavar="A:B", help="Steady window, in seconds (120:600) or shares (10%:90%)."),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of every random draw.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Leave report.html out.")]
ForceRun = Annotated[bool, typer.Option("--force", help="Replace the run directory if it exists.")]
