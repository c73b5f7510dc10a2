"""The command line: results on stdout, talk on stderr, one paragraph and exit code 2 for bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import NamedTuple

import pytest

import v4traces
from v4traces import CallRow, TraceMetadata, TraceWriter, read_table
from v4traces.cli import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys):
    def run(*argv) -> Outcome:
        code = main([str(argument) for argument in argv])
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return run


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "small.parquet"
    rows = [CallRow(session_id="a", turn=n, prompt_tokens=100 + n, output_tokens=5) for n in range(3)]
    with TraceWriter(path, TraceMetadata("test", "synthetic")) as writer:
        writer.append(rows)
    return path


def _refused(outcome: Outcome) -> str:
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("v4traces: ")
    assert outcome.err.count("\n") == 1
    return outcome.err


def test_import_writes_a_trace_and_says_what_it_counted(run, json_file, weka, tmp_path):
    source = json_file(weka.session([weka.call(0, weka.ids((4, "a")), out=0)]))
    outcome = run("import", "weka", source, "-o", tmp_path / "t.parquet")
    assert (outcome.code, outcome.out) == (0, "")
    assert "written as one token: 1" in outcome.err
    assert outcome.err.endswith("t.parquet: 1 calls, 1 sessions\n")
    assert read_table(tmp_path / "t.parquet").n == 1


def test_import_warns_of_what_misleads(run, json_file, tmp_path):
    line = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
    outcome = run("import", "mooncake", json_file(line, line), "-o", tmp_path / "t.parquet")
    assert "warning: 1 of 2 sessions begin with a prompt" in outcome.err


def test_import_takes_a_limit_and_a_salt(run, json_file, weka, tmp_path):
    source = json_file(*(weka.session([weka.call(0, [1], out=n)]) for n in range(1, 5)))
    run("import", "weka", source, "-o", tmp_path / "a", "--limit", 3)
    run("import", "weka", source, "-o", tmp_path / "b", "--limit", 3, "--salt", "pepper")
    one, two = read_table(tmp_path / "a"), read_table(tmp_path / "b")
    assert one.n == two.n == 3
    assert not set(one.session_names) & set(two.session_names)


def test_nothing_is_overwritten_without_force(run, trace, json_file, weka):
    source = json_file(weka.session([weka.call(0, [1])]))
    before = trace.read_bytes()
    assert "--force" in _refused(run("import", "weka", source, "-o", trace))
    assert trace.read_bytes() == before
    assert run("import", "weka", source, "-o", trace, "--force").code == 0
    assert trace.read_bytes() != before


def test_an_unknown_format_lists_the_known_ones(run, tmp_path):
    assert "mooncake, weka" in _refused(run("import", "csv", tmp_path, "-o", tmp_path / "t"))


def test_wrong_usage_is_one_paragraph_too(run):
    assert "--help" in _refused(run("import", "weka"))
    assert "No such command" in _refused(run("imprt"))
    assert "--limit" in _refused(run("import", "weka", "x", "-o", "y", "--limit", "0"))


def test_check_of_a_good_trace_says_so(run, trace):
    outcome = run("check", trace)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "small.parquet: 3 calls, 1 sessions; all laws hold.\n"


def test_check_shows_every_broken_law_and_exits_2(run, raw_file):
    path = raw_file({"output_tokens": [0, 1], "delay_s": [0.0, -1.0]})
    outcome = run("check", path)
    assert outcome.code == 2
    assert outcome.out.count("error [") == 2
    assert "2 laws are broken" in outcome.out
    as_json = run("check", path, "--json")
    assert as_json.code == 2
    assert [f["law"] for f in json.loads(as_json.out)["findings"]] == [
        "output_tokens_in_range",
        "delay_s_is_a_time",
    ]


def test_check_of_no_trace_is_bad_input(run, tmp_path):
    (tmp_path / "x").write_text("<html>")
    assert "web page" in _refused(run("check", tmp_path / "x"))
    assert "no file" in _refused(run("check", tmp_path / "y"))


def test_stats_as_text_and_as_json(run, trace):
    text = run("stats", trace)
    assert text.code == 0
    assert "infinite cache, own session" in text.out
    assert "output_tokens" in text.out
    facts = json.loads(run("stats", trace, "--json").out)
    assert facts["calls"] == 3
    assert facts["sha256"] == read_table(trace).sha256
    assert facts["metadata"]["trace_class"] == "synthetic"


def test_stats_of_a_broken_trace_is_bad_input(run, raw_file):
    assert "column 'output_tokens'" in _refused(run("stats", raw_file({"output_tokens": [0, 1]})))


def test_synth_makes_a_trace_that_holds(run, tmp_path):
    outcome = run("synth", "-o", tmp_path / "s.parquet", "--sessions", 2, "--seed", 5)
    assert (outcome.code, outcome.out) == (0, "")
    assert run("check", tmp_path / "s.parquet").code == 0
    assert read_table(tmp_path / "s.parquet").metadata.trace_class == "synthetic"


def test_export_writes_lines_that_import_again(run, trace, tmp_path):
    assert run("export", trace, "-o", tmp_path / "x.jsonl").code == 0
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 3
    assert "--force" in _refused(run("export", trace, "-o", tmp_path / "x.jsonl"))
    assert run("import", "mooncake", tmp_path / "x.jsonl", "-o", tmp_path / "y").code == 0


def _start(*argv, **options):
    command = [sys.executable, "-m", "v4traces.cli", *map(str, argv)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_output_has_no_escapes_where_nobody_watches(trace):
    process = _start("stats", trace, env={**os.environ, "NO_COLOR": "1"})
    out, err = process.communicate()
    assert process.returncode == 0
    assert "\x1b" not in out + err


def test_a_reader_that_leaves_is_no_error(trace):
    process = _start("stats", trace, "--json")
    process.stdout.close()
    assert process.wait() == 0
    assert process.stderr.read() == ""


@pytest.mark.usefixtures("sigint_heeded")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interrupted_import_leaves_nothing(tmp_path, number, code):
    # The importer waits for the end of a pipe; what it has begun to write is removed.
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    session = '{"requests": [{"t": 0, "type": "n", "in": 64, "out": 1, "hash_ids": [1]}]}\n'
    first = tmp_path / "first.json"
    first.write_text(session)
    folder = tmp_path / "out"
    folder.mkdir()
    process = _start("import", "weka", first, pipe, "-o", folder / "t.parquet")
    with pipe.open("w") as writer:
        writer.write(session)
        writer.flush()
        while not list(folder.iterdir()):
            time.sleep(0.01)
        process.send_signal(number)
    # The pipe is closed by now: a signal that came just before the read has its turn after it.
    _, err = process.communicate()
    assert process.returncode == code
    assert "nothing was written" in err
    assert list(folder.iterdir()) == []


def test_help_loads_nothing_heavy():
    script = (
        "import sys; from v4traces.cli import main; main(['--help']);"
        "sys.exit(', '.join({'numpy', 'pyarrow', 'pandas', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
    assert "import" in done.stdout


def test_public_names_are_these():
    assert set(v4traces.__all__) == {
        "PHASES",
        "TRIGGERS",
        "Acceptance",
        "CachedTokens",
        "CallRef",
        "CallRow",
        "Finding",
        "Phase",
        "TraceError",
        "TraceMetadata",
        "TraceTable",
        "TraceWriter",
        "V4Error",
        "check_trace",
        "read_table",
    }
    for name in v4traces.__all__:
        assert getattr(v4traces, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        v4traces.nothing  # noqa: B018
