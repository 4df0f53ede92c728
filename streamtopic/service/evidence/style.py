"""How the page looks: on a screen in either light, and on paper."""

__all__ = ["STYLE"]

STYLE = """
:root { color-scheme: light dark; --ink: #1b1d22; --soft: #565c68; --ground: #ffffff; --panel: #f4f5f7; --edge: #d5d8de;
  --good: #1a6b37; --bad: #a8201a; --open: #7a5200; --accent: #2456a6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e9ee; --soft: #a9b0bd; --ground: #14161a; --panel: #1e2127;
  --edge: #3a3f49; --good: #6fd08c; --bad: #ff8f86; --open: #f0c05a; --accent: #8db4f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 62rem; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid var(--edge); }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p, li { max-width: 46rem; }
a { color: var(--accent); }
a:focus-visible, .wide:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.soft { color: var(--soft); }
.verdict { border: 1px solid var(--edge); border-left: .4rem solid var(--good); background: var(--panel);
  padding: .75rem 1rem; margin: 1rem 0; }
.verdict.bad { border-left-color: var(--bad); }
.verdict.open { border-left-color: var(--open); }
.verdict p { margin: .2rem 0; }
.good { color: var(--good); font-weight: 600; white-space: nowrap; }
.bad { color: var(--bad); }
.open { color: var(--open); }
td .bad, td .open { font-weight: 600; white-space: nowrap; }
td { overflow-wrap: anywhere; min-width: 4.5rem; }
td .name { white-space: nowrap; overflow-wrap: normal; }
nav ul { columns: 16rem 3; padding-left: 1.1rem; margin: .5rem 0; }
dl { display: grid; grid-template-columns: minmax(9rem, 14rem) 1fr; gap: .25rem 1rem; margin: .5rem 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
bdi { overflow-wrap: break-word; }
.steps li { margin: .6rem 0; break-inside: avoid; }
.wide { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0; border-bottom: 1px solid var(--edge); }
th { font-weight: 600; }
td:last-child { min-width: 7rem; }
code { font: .88em/1.4 ui-monospace, "SFMono-Regular", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
blockquote { margin: .6rem 0; padding: .6rem 1rem; background: var(--panel); border-left: .25rem solid var(--accent); }
svg { width: 100%; max-width: 42rem; height: auto; font: 11px system-ui, sans-serif; }
svg text { fill: var(--soft); }
svg .axis { stroke: var(--soft); }
svg .budget { stroke: var(--bad); stroke-dasharray: 5 4; }
svg .line { fill: none; stroke: var(--accent); stroke-width: 2; }
svg .dot { fill: var(--accent); }
footer { margin-top: 3rem; color: var(--soft); font-size: .9rem; }
@media (max-width: 36rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
@media print { :root { color-scheme: light; --ink: #000; --soft: #444; --ground: #fff; --panel: #fff; --edge: #999;
  --good: #000; --bad: #000; --open: #000; --accent: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; } nav { display: none; } h2 { break-after: avoid; }
  tr, dl > *, .verdict, svg { break-inside: avoid; } .wide { overflow: visible; } a { text-decoration: none; } }
"""
