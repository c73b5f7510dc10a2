"""Options that several subcommands share, and writing a result whole or not at all."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

Ops = Annotated[
    list[str] | None, typer.Option("--ops", metavar="NAMES", help="Only these operations, comma-separated.")
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="NAME", help="Shapes to measure [v4-flash]; may be repeated."),
]
Quick = Annotated[bool, typer.Option("--quick", help="The small grid, minutes [default].")]
Full = Annotated[bool, typer.Option("--full", help="The full grid, about an hour.")]
DeviceKind = Annotated[str, typer.Option("--device", metavar="cuda|cpu", help="What to measure on.")]
Gpu = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", help="The GPU as v4sim names it [the device's own].")
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def say(text: str) -> None:
    """Talk goes to stderr."""
    print(text, file=sys.stderr, flush=True)


def grid_name(quick: bool, full: bool, device: str) -> str:
    """One of the two, or the one that a CPU has."""
    from v4calib.errors import CalibError

    if quick and full:
        raise CalibError("--quick and --full exclude each other: give one.")
    if device == "cpu":
        if full:
            raise CalibError("--full needs a GPU: a CPU has one small grid.")
        return "cpu"
    return "full" if full else "quick"


def models_of(names: list[str] | None) -> tuple[str, ...]:
    """Known models, V4-Flash by default."""
    from v4calib.errors import CalibError
    from v4kernels.shapes import MODELS

    chosen = tuple(dict.fromkeys(names or ["v4-flash"]))
    for name in chosen:
        if name not in MODELS:
            raise CalibError(f"--model {name}: there are kernels for {', '.join(MODELS)}.")
    return chosen


def rows_path(profile: Path) -> Path:
    """Where the rows of a profile lie: beside it."""
    return profile.with_name(profile.name.removesuffix(".json") + ".rows.jsonl")


def write_whole(path: Path, text: str, force: bool) -> None:
    """The file as a whole, or the one that was there."""
    from v4calib.errors import CalibError

    if path.exists() and not force:
        raise CalibError(f"{path} exists: give --force to replace it, or another file with -o.")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
