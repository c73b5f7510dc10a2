"""Turns matplotlib's SVG file into a small element that lives inside an HTML page.

The page's CSS must own colour and typeface (light, dark, print), so colour tokens become CSS variables and
font families go away. Nothing of the file's head may leak into the page: its global <style> would restyle
every other element. Coordinates keep one decimal, a twelfth of a millimetre on paper.
"""

from __future__ import annotations

import re
from html import escape

# matplotlib writes plain hex colours. Each token is a colour that no default uses, and stands for one
# CSS variable of the page.
TOKENS: tuple[str, ...] = (
    "ink", "muted", "rule", "band", "paper", "accent", "warn", "s1", "s2", "s3", "s4", "s5", "s6",
)  # fmt: skip
HEX_OF: dict[str, str] = {name: f"#fe00{index:02x}" for index, name in enumerate(TOKENS)}
_NAME_OF = {value: name for name, value in HEX_OF.items()}

_HEAD = re.compile(r"^.*?<svg[^>]*>", re.DOTALL)
_VIEW_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_STYLE = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FAMILY = re.compile(r"font-family: [^;\"]*;? ?")
_NO_ROTATION = re.compile(r' transform="rotate\(-0 [^"]*\)"')
_ID = re.compile(r' id="([^"]*)"')
_REFERENCE = re.compile(r'(?:url\(#|href="#)([^)"]*)')
_NUMBERS = re.compile(r'( (?:d|x|y|width|height|points|transform)=")([^"]*)"')
_DECIMAL = re.compile(r"-?\d+\.\d+")
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_BARE_GROUP = re.compile(r"<g>\s*(<[^>]*/>|<text[^>]*>[^<]*</text>)?\s*</g>")
_STYLES = re.compile(r'style="([^"]*)"')


def inline(svg_file: str, *, slug: str, title: str, description: str, css_class: str = "") -> str:
    """The <svg> element with an accessible name. `slug` must be unique in the page."""
    box = _VIEW_BOX.search(svg_file)
    assert box is not None, "matplotlib writes the size of every drawing"
    width, height = box.groups()
    body = _HEAD.sub("", svg_file, count=1)
    for pattern in (_METADATA, _STYLE, _COMMENT, _NO_ROTATION):
        body = pattern.sub("", body)
    body = _STYLES.sub(lambda match: f'style="{_style(match[1])}"', body)
    body = body.replace("xlink:href", "href")
    referenced = set(_REFERENCE.findall(body))
    body = _ID.sub(lambda match: match[0] if match[1] in referenced else "", body)
    body = _NUMBERS.sub(lambda match: f'{match[1]}{_rounded(match[2])}"', body)
    previous = ""
    while previous != body:
        previous, body = body, _BARE_GROUP.sub(lambda match: match[1] or "", body)
    body = re.sub(r">\s+<", ">\n<", body)
    head = (
        f'<svg class="figure {css_class}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="{slug}-t {slug}-d">'
        f'<title id="{slug}-t">{escape(title)}</title><desc id="{slug}-d">{escape(description)}</desc>'
    )
    return head + body


def _style(declarations: str) -> str:
    """Colour tokens to CSS variables, no font family, no spaces."""
    plain = _FAMILY.sub("", declarations).strip("; ").replace("; ", ";").replace(": ", ":")
    return _COLOUR.sub(
        lambda match: f"var(--{_NAME_OF[match[0]]})" if match[0] in _NAME_OF else match[0], plain
    )


def _rounded(numbers: str) -> str:
    """Coordinates with one decimal at most, whitespace collapsed."""
    short = _DECIMAL.sub(lambda match: f"{round(float(match[0]), 1) + 0.0:g}", numbers)
    return " ".join(short.split()).replace(" L ", "L").replace(" M ", "M")
