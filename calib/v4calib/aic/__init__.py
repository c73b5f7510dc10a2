"""Reference profiles from the kernel tables that NVIDIA publishes with aiconfigurator."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from v4calib.aic.build import description, draft_profile
from v4calib.aic.source import FOLDERS, Source
from v4calib.errors import CalibError
from v4sim.cost.profile import Profile, dump_profile

__all__ = ["make_profile", "write_profiles"]


def make_profile(gpu: str, source: Source) -> Profile:
    """The reference profile of one GPU."""
    return draft_profile(gpu, source).profile(description(gpu))


def write_profiles(
    source: Source, folder: Path, gpus: Sequence[str], force: bool, say: Callable[[str], None]
) -> list[Path]:
    """Make the profiles of `gpus` (all if empty) and write them, whole or not at all."""
    unknown = [g for g in gpus if g not in FOLDERS]
    if unknown:
        raise CalibError(f"--gpu {unknown[0]}: the published tables have {', '.join(FOLDERS)}.")
    targets = {gpu: folder / f"{gpu}.json" for gpu in (gpus or FOLDERS)}
    existing = [str(path) for path in targets.values() if path.exists()]
    if existing and not force:
        raise CalibError(f"{existing[0]} exists: give --force to replace it, or another folder with -o.")
    texts = {}
    for gpu in targets:
        say(f"reading the tables of {gpu}")
        texts[gpu] = dump_profile(make_profile(gpu, source))
    folder.mkdir(parents=True, exist_ok=True)
    for gpu, path in targets.items():
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(texts[gpu], encoding="utf-8")
        os.replace(partial, path)
    return list(targets.values())
