"""Draw docs/recovery.svg: the learner's error against the documents, beside what the Learning Guarantee allows.

streamtopic bench paper --case recovery-dirichlet --json | python docs/recovery.py
"""

import json
import math
import re
import sys
from pathlib import Path

__all__ = ["picture"]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 380, 60, 190, 20, 45
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #333 }
line { stroke: #ccc } path { fill: none; stroke-width: 2 }
.truth { stroke: #0a6 } .text { stroke: #06c } .bound { stroke: #c50; stroke-dasharray: 6 4 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } line { stroke: #555 } }
"""
Line = list[tuple[float, float]]


def picture(figures: list[dict[str, object]]) -> str:
    """Return the picture as SVG. figures: of one recovery case of the benchmark, as JSON has them."""
    lines: dict[str, Line] = {}
    for figure in figures:
        found = re.fullmatch(r"(\d+) words, error at m = ([\d,]+)", str(figure["name"]))
        if found:
            m = float(found[2].replace(",", ""))
            lines.setdefault(f"{found[1]} words", []).append((m, float(str(figure["value"]))))
            if found[1] == "12":
                allowed = float(str(figure["target"]).removeprefix("guarantee: "))
                lines.setdefault("guarantee for 12 words", []).append((m, allowed))
    kinds = {"12 words": "truth", "200 words": "text", "guarantee for 12 words": "bound"}
    x = _scale([m for line in lines.values() for m, _ in line], LEFT, WIDTH - RIGHT)
    y = _scale([1e-3, 1.0], HEIGHT - BOTTOM, TOP)
    parts = [_grid(x, y, [m for m, _ in lines["12 words"]])]
    for name, line in lines.items():
        path = " L".join(f"{x(m):.1f} {y(value):.1f}" for m, value in line)
        end = f'<text x="{x(line[-1][0]) + 8:.1f}" y="{y(line[-1][1]) + 4:.1f}">{name}</text>'
        parts.append(f'<path class="{kinds[name]}" d="M{path}"/>{end}')
    title = "Greatest entry of A - A* and R - R* against the number of documents, both on logarithmic axes"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{title}</title>'
        f"<style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _scale(values: list[float], start: float, stop: float):  # noqa: ANN202  a function of one number
    low, high = math.log(min(values)), math.log(max(values))
    return lambda value: start + (stop - start) * (math.log(value) - low) / (high - low)


def _grid(x, y, sizes: list[float]) -> str:  # noqa: ANN001  scales
    parts = []
    for power in range(-3, 1):
        level = y(10.0**power)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{level:.1f}" y2="{level:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{level + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    below = HEIGHT - BOTTOM + 18
    parts += [f'<text x="{x(m):.1f}" y="{below}" text-anchor="middle">{m:,.0f}</text>' for m in sizes]
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">documents</text>')
    return "".join(parts)


if __name__ == "__main__":
    drawn = picture(json.load(sys.stdin)["cases"][0]["figures"])
    (Path(__file__).parent / "recovery.svg").write_text(drawn, encoding="utf-8")
