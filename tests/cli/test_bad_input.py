"""Bad input ends in one paragraph that names the place, the rule and the way out; exit 2; nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Run = Callable[..., Any]


@pytest.fixture
def refused(v4sim: Run, tmp_path: Path) -> Callable[..., str]:
    """Replay into a new folder, hold the outcome to the rules above, return the complaint."""

    def replay(trace: Path, *flags: str) -> str:
        before = sorted(tmp_path.iterdir())
        outcome = v4sim("replay", trace, "-o", tmp_path / "run", "--no-report", *flags)
        assert outcome.code == 2, outcome.err
        assert outcome.out == ""
        assert sorted(tmp_path.iterdir()) == before, "something was left behind"
        complaint = outcome.complaint.strip()
        assert complaint.count("\n\n") == 0, "more than one paragraph"
        assert "Traceback" not in outcome.err
        assert len(complaint) > 40
        return str(complaint)

    return replay


@pytest.fixture
def altered(small_trace: Path) -> Callable[..., Path]:
    """The small trace with single cells, columns or metadata changed."""

    def alter(
        cells: dict[str, tuple[int, Any]] | None = None,
        extra: dict[str, list[Any]] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Path:
        table = pq.read_table(small_trace)
        for name, (row, value) in (cells or {}).items():
            place = table.schema.get_field_index(name)
            values = table.column(name).to_pylist()
            values[row] = value
            table = table.set_column(
                place, table.schema.field(name), pa.array(values, table.schema.field(name).type)
            )
        for name, values in (extra or {}).items():
            table = table.append_column(name, pa.array(values * table.num_rows))
        facts = json.loads(pq.read_metadata(small_trace).metadata[b"v4traces"]) | (metadata or {})
        table = table.replace_schema_metadata({b"v4traces": json.dumps(facts).encode()})
        path = small_trace.with_name("altered.parquet")
        pq.write_table(table, path)
        return path

    return alter


def test_an_unknown_column_is_named_with_the_nearest_known_one(refused: Run, altered: Run) -> None:
    complaint = refused(altered(extra={"promt_tokens": [1]}))
    assert "promt_tokens" in complaint
    assert "prompt_tokens" in complaint


def test_an_unknown_schema_version_is_refused(refused: Run, altered: Run) -> None:
    complaint = refused(altered(metadata={"schema_version": 99}))
    assert "99" in complaint
    assert "version" in complaint


def test_a_truncated_parquet_file_is_refused(refused: Run, small_trace: Path) -> None:
    cut = small_trace.with_name("cut.parquet")
    cut.write_bytes(small_trace.read_bytes()[:-200])
    assert "cut.parquet" in refused(cut)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 123\n", "git-LFS"),
        ("<!DOCTYPE html><html><body>404</body></html>", "web page"),
        ("", "empty"),
        ('{"timestamp": 1, "input_length": 3}\n', "v4traces import"),
    ],
    ids=["git-lfs pointer", "web page", "empty file", "raw json"],
)
def test_a_file_that_is_no_trace_is_told_apart(
    refused: Run, tmp_path: Path, content: str, words: str
) -> None:
    impostor = tmp_path / "trace.parquet"
    impostor.write_text(content)
    assert words in refused(impostor)


def test_a_trace_that_does_not_exist_is_refused(refused: Run, tmp_path: Path) -> None:
    assert "missing.parquet" in refused(tmp_path / "missing.parquet")


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [
        ("delay_s", 4, -1.0),
        ("delay_s", 4, float("nan")),
        ("delay_s", 4, float("inf")),
        ("output_tokens", 5, -3),
        ("prompt_tokens", 5, -3),
        ("parent_session", 4, "nobody"),
        ("parent_turn", 4, 2),
        ("shared_tokens", 4, 2_001),
    ],
    ids=[
        "negative time",
        "NaN time",
        "endless time",
        "negative output",
        "negative prompt",
        "unknown parent",
        "later parent",
        "shares more than the parent has",
    ],
)
def test_a_wrong_cell_is_named_by_row_and_column(
    refused: Run, altered: Run, column: str, row: int, value: object
) -> None:
    complaint = refused(altered(cells={column: (row, value)}))
    assert f"row {row}" in complaint
    assert column in complaint or column.split("_")[0] in complaint


def test_an_unknown_trigger_is_refused_with_the_known_ones(refused: Run, altered: Run) -> None:
    complaint = refused(altered(cells={"trigger": (4, "whim")}))
    assert "whim" in complaint
    assert "tool_result" in complaint


def test_a_prompt_above_the_context_is_refused(refused: Run, altered: Run) -> None:
    complaint = refused(altered(cells={"prompt_tokens": (2, 1_100_000)}))
    assert "1,100,000" in complaint or "1100000" in complaint
    assert "1,048,576" in complaint or "1048576" in complaint


def test_weights_that_do_not_fit_are_refused(refused: Run, small_trace: Path) -> None:
    complaint = refused(
        small_trace,
        *("--set", "model.name=v4-pro", "--set", "hardware.num_gpus=1"),
        *("--set", "parallel.attention_dp=1", "--set", "parallel.ep=1"),
    )
    assert "weights" in complaint
    assert "GiB" in complaint


def test_an_unknown_preset_is_refused_with_the_nearest(refused: Run, small_trace: Path) -> None:
    complaint = refused(small_trace, "-d", "4xB200 V4-Flash DPA4+EP4 sgland")
    assert "sgland" in complaint
    assert "4xB200 V4-Flash DPA4+EP4 sglang" in complaint


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("engine.page_token=128", "engine.page_tokens"),
        ("engine.page_tokens=none_of_it", "page_tokens"),
        ("engine.page_tokens", "section.key=value"),
        ("engine.page_tokens=-5", "page_tokens"),
        ("router.policy=psychic", "round_robin"),
        ("model.name=v5-flash", "v4-flash"),
        ("hardware.gpu=b201", "b200"),
    ],
)
def test_a_wrong_setting_is_refused_with_the_legal_ones(
    refused: Run, small_trace: Path, setting: str, words: str
) -> None:
    assert words in refused(small_trace, "--set", setting)


def test_an_unknown_key_in_a_file_is_refused(refused: Run, small_trace: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[engine]\npage_size = 256\n")
    complaint = refused(small_trace, "-d", str(file))
    assert "page_size" in complaint
    assert "mine.toml" in complaint


def test_an_unknown_profile_is_refused_with_the_known_ones(refused: Run, small_trace: Path) -> None:
    complaint = refused(small_trace, "-p", "b201")
    assert "b201" in complaint
    assert "b200" in complaint


def test_a_profile_of_another_gpu_is_refused(refused: Run, small_trace: Path) -> None:
    complaint = refused(small_trace, "-p", "h200").lower()
    assert "h200" in complaint
    assert "b200" in complaint


def test_a_profile_of_another_model_is_refused(refused: Run, small_trace: Path, tmp_path: Path) -> None:
    """One model's shapes never answer for another's."""
    known = json.loads((resources.files("v4sim") / "profiles/b200.json").read_text())
    known["operations"] = {k: v for k, v in known["operations"].items() if ".v4-flash" not in k}
    other = tmp_path / "pro-only.json"
    other.write_text(json.dumps(known))
    complaint = refused(small_trace, "-p", str(other))
    assert "v4-flash" in complaint
    assert "v4calib" in complaint


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--arrivals", "sometimes"), "poisson:RATE"),
        (("--arrivals", "poisson:-1"), "-1"),
        (("--arrivals", "poisson:nan"), "nan"),
        (("--arrivals", "trace"), "arrival_s"),
        (("--sessions", "0"), "0"),
        (("--sessions", "4", "--arrivals", "poisson:1"), "exclude"),
        (("--window", "9:1"), "9:1"),
        (("--window", "later"), "later"),
    ],
)
def test_a_wrong_workload_is_refused(
    refused: Run, small_trace: Path, flags: tuple[str, ...], words: str
) -> None:
    assert words in refused(small_trace, *flags)


def test_an_unknown_option_is_bad_input_like_any_other(refused: Run, small_trace: Path) -> None:
    complaint = refused(small_trace, "--seesions", "4")
    assert "--seesions" in complaint
    assert "v4sim replay --help" in complaint


def test_an_unknown_command_is_refused(v4sim: Run) -> None:
    outcome = v4sim("reply", "trace.parquet")
    assert outcome.code == 2
    assert "reply" in outcome.complaint


@pytest.mark.parametrize("command", ["show", "report"])
def test_other_commands_refuse_what_is_not_there(v4sim: Run, tmp_path: Path, command: str) -> None:
    outcome = v4sim(command, tmp_path / "nothing")
    assert outcome.code == 2
    assert "nothing" in outcome.complaint
    assert outcome.out == ""


@pytest.mark.parametrize(
    ("factor", "flags", "says"),
    [
        (1e9, [], "would take 7,9"),  # seconds: a quarter of a year
        (1e15, [], "Times in a profile are microseconds"),
        (1, ["--set", "engine.cpu_step_us=1e15"], "engine.cpu_step_us"),
        (1, ["--set", "engine.cpu_request_us=1e18"], "The run passes 146 years"),
    ],
)
def test_absurd_times_are_an_error_and_no_overflow(
    refused: Run, small_trace: Path, tmp_path: Path, factor: float, flags: list[str], says: str
) -> None:
    from v4sim.cost.profile import dump_profile, load_profile

    profile = load_profile("b200")
    slow = {
        name: operation if operation.unit == "share" else operation.scaled(factor)
        for name, operation in profile.operations.items()
    }
    other = tmp_path / "slow.json"
    other.write_text(dump_profile(replace(profile, operations=slow)))
    assert says in refused(small_trace, "-p", str(other), *flags)


def test_the_program_alone_shows_what_it_can_do(v4sim: Run) -> None:
    outcome = v4sim()
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("Usage: v4sim")
    assert "\n  replay " in outcome.err, "a list, one command a line"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["-d", ""], "no deployment preset ''"),
        (["-p", ""], "no profile ''"),
        (["--set", "engine=1"], "'engine' (--set engine=1) is a section, not a key: set one of engine.kind"),
        (["--seed", "-1"], "--seed"),
    ],
)
def test_an_empty_name_or_a_section_is_no_default(
    refused: Run, small_trace: Path, flags: list[str], says: str
) -> None:
    assert says in refused(small_trace, *flags)


def test_a_folder_that_cannot_be_made_is_refused_before_the_simulation(v4sim: Run, small_trace: Path) -> None:
    outcome = v4sim("replay", small_trace, "-o", small_trace / "run")
    assert outcome.code == 2
    assert "small.parquet is not a directory" in outcome.complaint
    assert "simulating" not in outcome.err
