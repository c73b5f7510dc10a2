"""Fixtures that every area may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no failure: no test is timed.
settings.register_profile("v4sim", deadline=None)
settings.load_profile("v4sim")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The public traces that stand beside the checkout; tests that read them are skipped without."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (folder / "weka").is_dir():
        pytest.skip(f"the public traces are not beside the checkout ({folder.parent.name}/{folder.name})")
    return folder
