"""How pages and pictures look: one style for screens, light and dark, and for paper.

Colours are variables, so that one picture serves both; positive and negative are told apart by hue and by sign in the
tables, never by colour alone. Contrast of text is above 7 : 1, of marks above 3 : 1.
"""

__all__ = ["PAGE", "PICTURE"]

_LIGHT = "--ink:#1a1d21;--soft:#4a525c;--line:#c9ced6;--paper:#fff;--wash:#f3f5f8;--mark:#2563ad;--warm:#b4530a"
_DARK = "--ink:#eceff4;--soft:#b4bcc8;--line:#3d4654;--paper:#14171c;--wash:#1d222a;--mark:#6aa9f0;--warm:#f0994d"

COLOURS = (
    f":root{{color-scheme:light dark;{_LIGHT}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    f"@media print{{:root{{color-scheme:light;{_LIGHT}}}}}"
)

PICTURE = (
    f"{COLOURS}"
    "svg{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif}"
    "svg text{fill:var(--ink)}"
    "svg .soft{fill:var(--soft)}"
    "svg .small{font-size:11px}"
    "svg .strong{font-weight:600}"
    "svg .mark{fill:var(--mark)}"
    "svg .warm{fill:var(--warm)}"
    "svg .mark-line{stroke:var(--mark);stroke-width:2;fill:none}"
    "svg .warm-line{stroke:var(--warm);stroke-width:2;fill:none}"
    "svg .plain{fill:var(--soft)}"
    "svg .plain-line{stroke:var(--soft);stroke-width:1.5;fill:none}"
    "svg .dashed{stroke-dasharray:5 4}"
    "svg .faint{fill-opacity:.32}"
    "svg .clear{paint-order:stroke;stroke:var(--paper);stroke-width:3px}"
    "svg .ring{stroke:var(--mark);stroke-width:1.5;fill:var(--mark);fill-opacity:.22}"
    "svg .axis{stroke:var(--line);stroke-width:1;fill:none}"
    "svg .chosen{stroke:var(--warm);stroke-width:1.5;stroke-dasharray:4 3}"
    "svg .paper{fill:var(--paper)}"
    "svg a:hover .ring,svg a:focus .ring{fill-opacity:.5}"
)

PAGE = (
    f"{PICTURE}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--paper);color:var(--ink);line-height:1.5;"
    "font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif}"
    "main{max-width:74rem;margin:0 auto;padding:1.5rem 1.25rem 4rem}"
    "h1{font-size:1.75rem;line-height:1.2;margin:.5rem 0}h2{font-size:1.3rem;margin:3rem 0 .5rem}"
    "h3{font-size:1rem;margin:0}p{max-width:46rem;margin:.5rem 0}.soft{color:var(--soft)}"
    "a{color:var(--mark)}nav a{margin-right:1rem}"
    ".warning{border-left:4px solid var(--warm);padding:.25rem .9rem;background:var(--wash)}"
    ".cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(20rem,100%),1fr));gap:1rem;margin-top:1rem}"
    ".card{border:1px solid var(--line);border-radius:6px;padding:.7rem .8rem;break-inside:avoid}"
    ".card:target{outline:2px solid var(--warm)}"
    ".card header{display:flex;justify-content:space-between;gap:.5rem;margin-bottom:.3rem}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;padding:.15rem .6rem .15rem 0;vertical-align:baseline;overflow-wrap:anywhere}"
    "th{font-weight:600}td.n,th.n{text-align:right;overflow-wrap:normal;white-space:nowrap}"
    ".card table{width:100%;table-layout:fixed;font-size:.86rem}.card th{font-weight:400;width:34%}"
    ".card th:nth-child(2){width:auto}.card th.n{width:3.7rem;padding-right:0}.card td.n{padding-right:0}"
    ".bar{display:block;height:.6rem;background:var(--mark)}"
    ".ruled{font-size:.9rem}.ruled tr>*{border-bottom:1px solid var(--line);padding:.3rem .8rem .3rem 0}"
    ".wide{overflow-x:auto}.picture{margin:1rem 0}.picture>svg{width:100%;height:auto;display:block}"
    "figcaption{color:var(--soft);font-size:.9rem;max-width:46rem}"
    "details{margin:.5rem 0}summary{cursor:pointer;color:var(--mark)}"
    "dl{display:grid;grid-template-columns:minmax(9rem,16rem) 1fr;gap:.35rem 1rem;max-width:60rem}"
    "dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}"
    ".came{color:var(--mark)}.went{color:var(--soft);text-decoration:line-through}"
    "@media (max-width:40rem){dl{grid-template-columns:1fr;gap:.1rem}dd{margin-bottom:.6rem}}"
    "@media print{main{max-width:none;padding:0}a{color:inherit}nav{display:none}h2{break-after:avoid}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}"
)
