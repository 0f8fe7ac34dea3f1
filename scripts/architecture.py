#!/usr/bin/env python3
"""Draw the packages of nmt by layer, and the way of a sentence through them.

    scripts/architecture.py docs/figures/architecture.svg

The layers are those that `lint-imports` checks. A test compares the picture with them.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
WAY = (
    ("cli", "nmt translate"),
    ("jobs", "lines or a document"),
    ("translation", "segments, guard"),
    ("engines", "token ids"),
    ("search", "beam"),
)
"""Packages that a sentence passes, and what it is there."""
WIDTH, MARGIN = 760, 12
BOX_HEIGHT, ROW_HEIGHT = 44, 54
STYLE = """
  text { font: 14px sans-serif; fill: #1a1a1a; text-anchor: middle }
  .note { font-size: 11px; fill: #8a3b00 }
  rect { fill: #eef3f8; stroke: #5b7c99 }
  .passed { fill: #ffe9d6; stroke: #c8641b }
"""


def layers() -> list[list[str]]:
    """Return the packages of each layer, the highest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    rows: list[str] = project["tool"]["importlinter"]["contracts"][0]["layers"]
    return [row.split(" | ") for row in rows]


def draw(rows: list[list[str]]) -> str:
    """Return the picture as SVG."""
    notes = {name: f"{i}. {note}" for i, (name, note) in enumerate(WAY, 1)}
    boxes: list[str] = []
    for index, row in enumerate(rows):
        top = MARGIN + index * ROW_HEIGHT
        box_width = (WIDTH - MARGIN) / len(row) - MARGIN
        for column, name in enumerate(row):
            left = MARGIN + column * (box_width + MARGIN)
            boxes.append(_box(name, notes.get(name, ""), left, top, box_width))
    height = MARGIN + len(rows) * ROW_HEIGHT
    body = "\n".join(boxes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        f"<title>Packages of nmt by layer: each imports only from those below</title>\n"
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def _box(name: str, note: str, left: float, top: float, width: float) -> str:
    center = left + width / 2
    kind = ' class="passed"' if note else ""
    label_top = top + (19 if note else 27)
    box = (
        f'<rect{kind} x="{left:.0f}" y="{top}" width="{width:.0f}" height="{BOX_HEIGHT}" rx="6"/>'
        f'<text x="{center:.0f}" y="{label_top}">{name}</text>'
    )
    if note:
        box += f'<text class="note" x="{center:.0f}" y="{top + 36}">{escape(note)}</text>'
    return box


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(layers()), encoding="utf-8")
