"""What may be handed to an importer, and what is refused with which reason."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile

import pytest

from v4traces import TraceError
from v4traces.importers.values import json_values
from v4traces.sources import Document, documents


@pytest.fixture
def sessions(weka):
    return [weka.session([weka.call(0, weka.ids((4, "a")), out=n)], id=f"trace_{n}") for n in range(1, 4)]


def _tar(values, mode):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for n, value in enumerate(values):
            data = json.dumps(value).encode()
            info = tarfile.TarInfo(f"sessions/{n}.json")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        note = tarfile.TarInfo("sessions/README.md")
        archive.addfile(note)
    return buffer.getvalue()


def _forms(values, folder):
    lines = "".join(json.dumps(value) + "\n" for value in values).encode()
    inside = folder / "in" / "deep"
    inside.mkdir(parents=True)
    for n, value in enumerate(values):
        (inside / f"{n}.json").write_text(json.dumps(value, indent=1))
    (inside / "notes.txt").write_text("not a log")
    content = {
        "lines.jsonl": lines,
        "no-newline-at-end.jsonl": lines.rstrip(),
        "list.json": json.dumps(values).encode(),
        "marked.json": b"\xef\xbb\xbf" + json.dumps(values).encode(),
        "marked.jsonl": b"\xef\xbb\xbf" + lines,
        "lines.jsonl.gz": gzip.compress(lines),
        "lines.jsonl.xz": lzma.compress(lines),
        "plain.tar": _tar(values, "w"),
        "packed.tar.xz": _tar(values, "w:xz"),
        "packed.tgz": _tar(values, "w:gz"),
        # What a file is, is told by its bytes.
        "misnamed.json": lzma.compress(lines),
    }
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return ["in", *content]


def test_the_same_sessions_in_any_packing_give_the_same_trace(tmp_path, run_import, sessions):
    results = {}
    for name in _forms(sessions, tmp_path):
        table = run_import("weka", tmp_path / name, salt="s")
        results[name] = (table.output_tokens.tolist(), table.session_names, table.sha256)
    assert set(map(repr, results.values())) == {repr(results["in"])}
    assert results["in"][0] == [1, 2, 3]


def test_only_newlines_end_a_line_and_a_lone_value_may_have_many():
    def values(data):
        return [value for _, value in json_values(Document("a.jsonl", data))]

    separated = '{"text": "one\u2028two\x85three"}\r\n'.encode()
    assert values(separated * 2) == [{"text": "one\u2028two\x85three"}] * 2
    assert values(b"\n[1,\n2]\n") == [[1, 2]]
    assert values(b"1\n\n") == [1]
    assert values(b"1\n\n 2") == [1, 2]


def test_files_of_a_folder_are_sorted_by_name_and_arguments_keep_their_order(tmp_path, run_import, sessions):
    for name, session in zip("bca", sessions, strict=True):
        (tmp_path / f"{name}.json").write_text(json.dumps(session))
    assert run_import("weka", tmp_path).output_tokens.tolist() == [3, 1, 2]
    assert run_import("weka", *(tmp_path / f"{n}.json" for n in "cba")).output_tokens.tolist() == [2, 1, 3]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git-LFS pointer"),
        ("a.json", b"<!DOCTYPE html><title>Sign in</title>", "web page"),
        ("a.json.gz", gzip.compress(b"<html>"), "web page"),
        ("a.json", b"", "is empty"),
        ("a.json.gz", gzip.compress(b"{}" * 999)[:-9], "damaged or truncated"),
        ("a.json.xz", lzma.compress(b"{}" * 999)[:-9], "damaged or truncated"),
        ("a.tar", _tar([{"x": "y" * 2000}], "w")[:700], "damaged or truncated"),
        ("a.json.zst", b"\x28\xb5\x2f\xfd" + b"x" * 9, "packed with zstd"),
        ("a.zip", b"PK\x03\x04" + b"x" * 9, "packed with zip"),
        ("a.json", b"\xff\xfe{\x00}\x00", "not UTF-8"),
        ("a.json", b'{"requests": [', "cut off"),
        ("a.json", b"[1, 2,, 3]", "not JSON"),
        ("a.jsonl", b'{"requests": []}\n{"requests": [}\n{"requests": []}\n', "line 2 is not JSON"),
        ("a.jsonl", b'{"requests": []}\n{"requ', "line 2: the last line is cut off"),
        ("a.tar", _tar([], "w"), "holds no .json"),
    ],
)
def test_what_cannot_be_a_log_is_refused_with_the_reason(tmp_path, run_import, name, content, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError, match=says) as error:
        run_import("weka", tmp_path / name)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_an_impostor_inside_an_archive_is_named_with_it(tmp_path, run_import):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("x/1.json")
        info.size = 6
        archive.addfile(info, io.BytesIO(b"<html>"))
    (tmp_path / "a.tar").write_bytes(buffer.getvalue())
    with pytest.raises(TraceError, match=r"a\.tar:x/1\.json is a web page"):
        run_import("weka", tmp_path / "a.tar")


def test_missing_paths_and_empty_folders_are_refused(tmp_path):
    with pytest.raises(TraceError, match="no file or folder"):
        list(documents([tmp_path / "none"]))
    with pytest.raises(TraceError, match="holds no"):
        list(documents([tmp_path]))


def test_no_sources_are_refused(run_import):
    with pytest.raises(TraceError, match="no source"):
        run_import("weka")


def test_a_failed_import_leaves_nothing(tmp_path, run_import, json_file, weka):
    good, bad = json_file(weka.session([weka.call(0, [1])]), name="1.json"), json_file({}, name="2.json")
    with pytest.raises(TraceError):
        run_import("weka", good, bad)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.json", "2.json"]


def test_messages_do_not_quote_the_source(run_import, tmp_path):
    (tmp_path / "a.json").write_text('{"requests": "hunter2 secret"}')
    with pytest.raises(TraceError) as error:
        run_import("weka", tmp_path / "a.json")
    assert "hunter2" not in str(error.value)
