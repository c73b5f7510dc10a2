"""Scrubbing is a guarantee: nothing of a source but numbers, hashes and public words reaches a trace."""

from __future__ import annotations

import json
import re

import pyarrow.parquet as pq
import pytest

from v4traces.importers import importer_names
from v4traces.scrub import Scrubber

# Words that no column name, metadata or hash can hold by chance.
CANARY = "zq7f3a/zqhome/zqeve/zqrepo;zqcurl zqs://zqhost.zqinternal -H 'zqtoken: zqhunter2'"


def _weka(weka):
    call = weka.call(
        0,
        ["id-" + CANARY, CANARY],
        model=CANARY,
        type=CANARY,
        stop=CANARY,
        input_types=["text", CANARY],
        output_types=[CANARY],
        prompt=CANARY,
        cwd=CANARY,
        **{CANARY: CANARY},
    )
    agent = weka.agent(
        5,
        [weka.call(0, [CANARY], model="claude-" + CANARY), weka.call(4, [CANARY, 2])],
        agent_id=CANARY,
        subagent_type=CANARY,
        status=CANARY,
        models=[CANARY],
        duration_ms=1000,
        description=CANARY,
    )
    return [weka.session([call, agent], id=CANARY, models=[CANARY], hash_id_scope=CANARY, title=CANARY)]


def _mooncake(_weka):
    line = {
        "timestamp": 0,
        "input_length": 600,
        "output_length": 5,
        "hash_ids": [CANARY, 2],
        "session_id": CANARY,
        "request_id": CANARY,
        "text_input": CANARY,
        "messages": [{"role": "user", "content": CANARY}],
        CANARY: CANARY,
    }
    return [line, {**line, "wait_for": [CANARY], "delay": 5}]


SOURCES = {"weka": _weka, "mooncake": _mooncake}


def test_every_importer_has_a_canary():
    assert set(SOURCES) == set(importer_names())


@pytest.mark.parametrize("kind", SOURCES)
def test_no_canary_survives_an_import(kind, run_import, json_file, weka, tmp_path):
    source = json_file(*SOURCES[kind](weka), name="zq7f3a.json")
    table = run_import(kind, source)
    assert table.n >= 2
    path = tmp_path / f"{kind}-import.parquet"
    everything = json.dumps(pq.read_table(path).to_pylist()) + repr(pq.read_metadata(path).metadata)
    for word in re.findall("zq[a-z0-9]+", CANARY):
        assert word not in everything.lower()
        assert word.encode() not in path.read_bytes().lower()


@pytest.mark.parametrize("kind", SOURCES)
def test_ids_depend_on_the_salt_and_repeat_for_equal_ones(kind, run_import, json_file, weka):
    source = json_file(*SOURCES[kind](weka))
    names = [set(run_import(kind, source, salt=salt).session_names) for salt in ("", "", "x", "x", "y")]
    assert names[0] == names[1]
    assert names[2] == names[3]
    assert not (names[0] & names[2] | names[2] & names[4] | names[0] & names[4])


def test_without_a_salt_of_ones_own_ids_cannot_be_guessed_from_public_facts(run_import, json_file, weka):
    """The same lengths of tools and system prompt, and the same private model, in two sources."""
    sources = [
        json_file(weka.session([weka.call(0, [1], out=n, model="acme")]), name=f"{n}.json") for n in (1, 2)
    ]
    one, two = (run_import("weka", source) for source in sources)
    assert one.group_names != two.group_names
    assert one.model_names != two.model_names
    # Within one import they do meet.
    both = run_import("weka", *sources)
    assert both.group.tolist() == both.model.tolist() == [0, 0]


@pytest.mark.parametrize(
    "name",
    [
        "claude-opus-4-5-20251101",
        "claude-sonnet-4-20250514",
        "gpt-5.5",
        "gpt-4o",
        "gpt-oss-120b",
        "deepseek-v4.1-flash",
        "qwen3.5-397b",
        "glm-5.2",
        "o3-mini",
    ],
)
def test_names_of_public_models_are_kept(name):
    assert Scrubber(b"").model(name) == name
    assert Scrubber(b"").model(name.upper()) == name


@pytest.mark.parametrize(
    "name",
    [
        "claude-acme-secret",
        "gpt-5.internal.example",
        "models/deepseek-v4",
        "sk-0123456789abcdef",
        "claude opus",
        "claude-opus\n",
        "4-5",
        "-",
        "claude-" * 20,
        "claude-" + "1" * 9,
    ],
)
def test_any_other_model_is_hashed(name):
    assert re.fullmatch(r"model-[0-9a-f]{16}", Scrubber(b"").model(name))


def test_no_model_is_none():
    assert Scrubber(b"").model(None) is None
    assert Scrubber(b"").model("") is None
    assert Scrubber(b"").model({"name": "x"}) is None


def test_identities_of_different_kinds_and_parts_do_not_meet():
    scrub = Scrubber(b"salt")
    names = [
        scrub.identity("a", "b"),
        scrub.identity("b", "b"),
        scrub.identity("a", "b", ""),
        scrub.identity("a", "", "b"),
        scrub.identity("a", b"b"),
        scrub.identity("a", 1),
        scrub.identity("a", "1"),
    ]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[0-9a-f]{16}", name) for name in names)
