"""Models and evidence as people look at them: pages and pictures that need no network and no script.

rendering         templates filled in by Jinja2, in which words never become markup
templates/        the pages and the picture, with their styles
model_view        numbers of a release or of a fitted AnchorTopics, places of topics on a map and over versions
charts            points and curves, bars, lines
slices_section    topics over time and by class, a part of the page
model_page        a version for its readers: topics, map, correlations, history, guarantee
suggestion_page   the answer of `streamtopic suggest`
version_report    a version for its auditor, as one page that can be checked with a public key alone
plots             figures for notebooks, by matplotlib
"""
