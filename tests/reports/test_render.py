"""The page as a file and as a document: whole, offline, repeatable, safe against its own data."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import v4reports
from v4sim.errors import RunError

STYLE = Path(v4reports.__file__).with_name("templates") / "style.css"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7*7 }}"


@pytest.fixture
def page(full_page: Any) -> Any:
    return full_page


def test_the_report_lies_in_the_run_directory(run_dir: Path) -> None:
    assert v4reports.render(run_dir) == run_dir / "report.html"
    assert sorted(path.name for path in run_dir.iterdir()) == ["calls.parquet", "report.html", "result.json"]


def test_the_same_run_gives_the_same_bytes(run_dir: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.html", tmp_path / "second.html"
    v4reports.render(run_dir, first)
    code = (
        f"import v4reports, pathlib as p; v4reports.render(p.Path({str(run_dir)!r}), p.Path({str(second)!r}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONHASHSEED": "77"})
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 400_000


def test_nothing_is_overwritten_unasked(run_dir: Path) -> None:
    report = run_dir / "report.html"
    report.write_text("mine")
    with pytest.raises(RunError, match=r"report\.html already exists and is not overwritten without --force"):
        v4reports.render(run_dir)
    assert report.read_text() == "mine"
    v4reports.render(run_dir, force=True)
    assert report.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("target", "says"), [("no/such/report.html", "its directory does not exist"), (".", "is a directory")]
)
def test_a_target_that_cannot_be_written_is_refused(run_dir: Path, target: str, says: str) -> None:
    with pytest.raises(RunError, match=says):
        v4reports.render(run_dir, run_dir / target)


def test_an_interrupted_write_leaves_nothing(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        v4reports.render(run_dir)
    assert sorted(path.name for path in run_dir.iterdir()) == ["calls.parquet", "result.json"]


def test_a_bare_result_still_gives_a_page(tmp_path: Path, htmlpage: ModuleType) -> None:
    (tmp_path / "result.json").write_text('{"schema_version": 1}')
    page = htmlpage.parse(v4reports.render(tmp_path).read_text(encoding="utf-8"))
    assert page.all("figure") == []
    reasons = [e for e in page.walk() if e.attributes.get("class") == "absent"]
    assert len(reasons) >= 10
    assert all(e.all("p")[0].text().endswith(".") for e in reasons)


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, v4reports; print([m for m in ('matplotlib', 'jinja2', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_rendering_needs_neither_pyplot_nor_pandas(run_dir: Path) -> None:
    code = (
        f"import sys, pathlib, v4reports; v4reports.render(pathlib.Path({str(run_dir)!r}));"
        "print([m for m in ('matplotlib.pyplot', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def spoil_every_text(value: Any) -> Any:
    """The same structure with hostile text for every name and sentence in it."""
    if isinstance(value, dict):
        return {
            f"{key}{HOSTILE}" if key in OPEN_KEYS else key: spoil_every_text(v) for key, v in value.items()
        }
    if isinstance(value, list):
        return [spoil_every_text(item) for item in value]
    return HOSTILE + value if isinstance(value, str) else value


# Names that an engine chooses: event classes, parts, phases, reasons, keys of the manifest.
OPEN_KEYS = {"cold", "fork", "moe", "code", "prose", "budget", "trace", "engine", "numpy"}


def test_hostile_text_stays_text(run_dir: Path, htmlpage: ModuleType) -> None:
    result = run_dir / "result.json"
    result.write_text(json.dumps(spoil_every_text(json.loads(result.read_text()))))
    html = v4reports.render(run_dir).read_text(encoding="utf-8")
    page = htmlpage.parse(html)
    assert page.all("script") == page.all("img") == []
    assert not [e for e in page.walk() if any(name.startswith("on") for name in e.attributes)]
    assert html.count("&lt;script&gt;alert(1)") > 40
    assert "{{ 7*7 }}" in html  # not filled in


def test_the_page_asks_for_nothing(page: Any) -> None:
    policy = [m.attributes["content"] for m in page.all("meta") if "http-equiv" in m.attributes]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    links = [e.attributes[name] for e in page.walk() for name in ("href", "src") if name in e.attributes]
    assert {link[0] if link.startswith("#") else link for link in links} == {"#", "data:,"}
    css = page.all("style")[0].text()
    assert "url(" not in css
    assert "@import" not in css


def test_links_inside_the_page_lead_somewhere(page: Any) -> None:
    ids = [e.attributes["id"] for e in page.walk() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    targets = {e.attributes["href"][1:] for e in page.all("a")}
    assert len(targets) >= 9
    assert targets <= set(ids)
    labels = " ".join(e.attributes.get("aria-labelledby", "") for e in page.walk()).split()
    assert set(labels) <= set(ids)


def test_headline_limits_and_next_stand_before_everything_else(page: Any) -> None:
    main = page.all("main")[0]
    order = [
        e for e in main.walk() if e.tag in ("h1", "figure", "h2") or e.attributes.get("class") == "number"
    ]
    assert [e.tag for e in order[:5]] == ["h1", "p", "figure", "h2", "h2"]
    assert order[0].text().startswith("32 sessions alive on 4×B200")
    assert re.fullmatch(r"\d\.\d\d s to first token after a tool, p95", order[1].text())
    assert order[2].attributes["id"] == "figure-ttft"
    assert [e.text() for e in order[3:5]] == ["What limits", "What to try next"]


def test_the_document_has_landmarks_and_named_parts(page: Any) -> None:
    assert page.all("html")[0].attributes["lang"] == "en"
    for tag in ("header", "main", "footer", "nav", "h1", "title"):
        assert len([e for e in page.all(tag) if tag != "title" or e in page.all("head")[0].children]) == 1
    levels = [int(e.tag[1]) for e in page.walk() if re.fullmatch("h[1-6]", e.tag)]
    assert all(after - before <= 1 or before == 1 for before, after in pairwise(levels))
    for table in page.all("table"):
        assert table.all("caption")[0].text()
        assert all(th.attributes["scope"] in ("col", "row") for th in table.all("th"))
        widths = {len(tr.all("th")) + len(tr.all("td")) for tr in table.all("tr")}
        assert len(widths) == 1, "rows of one table differ in their number of cells"
    for figure in page.all("figure"):
        assert figure.all("figcaption")[0].text()
        assert all(svg.attributes["role"] == "img" for svg in figure.all("svg"))


def colours(css: str) -> dict[str, dict[str, str]]:
    """Variables by scheme: light, dark, print."""
    blocks = re.findall(r":root \{([^}]*)\}", css)
    return {
        scheme: dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", block))
        for scheme, block in zip(("light", "dark", "print"), blocks, strict=True)
    }


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio of two hex colours."""

    def luminance(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_text_and_marks_stand_out(scheme: str) -> None:
    found = colours(STYLE.read_text())[scheme]
    for background in ("paper", "band"):
        # s1 to s4 and s6 also colour labels at the ends of lines; s5 colours areas only.
        for text in ("ink", "muted", "accent", "warn", "s1", "s2", "s3", "s4", "s6"):
            assert contrast(found[text], found[background]) >= 4.5, (text, background)
        assert contrast(found["s5"], found[background]) >= 3.0


def test_contrast_is_computed_as_wcag_defines_it() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.01)
