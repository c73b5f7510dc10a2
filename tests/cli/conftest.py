"""A tiny trace, and the command line run inside this process with what it printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from v4sim.cli import main
from v4traces import CallRow, TraceMetadata, TraceWriter


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The error, without what was said before it."""
        return self.err[self.err.index("v4sim: ") :] if "v4sim: " in self.err else ""


@pytest.fixture
def v4sim(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    def run(*argv: str | Path) -> Outcome:
        code = main([str(argument) for argument in argv])
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return run


def rows(sessions: int = 4, turns: int = 3) -> list[CallRow]:
    """Sessions of a few growing turns: the smallest trace with warm calls in it."""
    made = []
    for number in range(sessions):
        session, prompt = f"s{number}", 2_000
        for turn in range(turns):
            made.append(
                CallRow(
                    session_id=session,
                    turn=turn,
                    parent_session=session if turn else None,
                    parent_turn=turn - 1 if turn else None,
                    shared_tokens=prompt - 500 if turn else 0,
                    prompt_tokens=prompt,
                    output_tokens=40,
                    delay_s=0.5 if turn else 0.0,
                    trigger="tool_result" if turn else "user",
                )
            )
            prompt += 500
    return made


def write(path: Path, calls: list[CallRow]) -> Path:
    with TraceWriter(path, TraceMetadata(source_format="test", trace_class="synthetic")) as writer:
        writer.append(calls)
    return path


@pytest.fixture
def small_trace(tmp_path: Path) -> Path:
    return write(tmp_path / "small.parquet", rows())


@pytest.fixture
def long_trace(tmp_path: Path) -> Path:
    """Enough work that an interrupt arrives while it is being simulated."""
    return write(tmp_path / "long.parquet", rows(sessions=400, turns=60))
