"""`v4calib import aiconfigurator`: the reference profiles, from the published kernel tables.

The same package gives the same bytes. All profiles are made before the first one is written.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def aiconfigurator(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for one <gpu>.json each.")
    ] = Path("profiles"),
    wheel: Annotated[
        Path | None,
        typer.Option("--wheel", metavar="FILE", help="Read this wheel [the installed aiconfigurator-core]."),
    ] = None,
    gpus: Annotated[
        list[str] | None, typer.Option("--gpu", metavar="NAME", help="Only this GPU; may be repeated.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace profiles that exist.")] = False,
) -> None:
    """Make a profile per GPU from the tables of NVIDIA's aiconfigurator-core 0.12.0."""
    from v4calib.aic import write_profiles
    from v4calib.aic.source import Source

    with Source(wheel) as source:
        for path in write_profiles(source, output, gpus or [], force, _say):
            print(path)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
