"""The published tables, where this machine has them: installed, or a wheel named in the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from v4calib.aic.source import Source
from v4calib.errors import CalibError

WHEEL = "V4CALIB_AICONFIGURATOR_WHEEL"


@pytest.fixture(scope="session")
def published() -> Iterator[Source]:
    wheel = os.environ.get(WHEEL)
    try:
        source = Source(Path(wheel) if wheel else None)
    except CalibError as missing:
        pytest.skip(f"{missing} (or name the wheel in {WHEEL})")
    with source:
        yield source


@pytest.fixture(scope="session")
def wheel_option() -> list[str]:
    wheel = os.environ.get(WHEEL)
    return ["--wheel", wheel] if wheel else []
