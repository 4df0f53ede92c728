"""Models and evidence as people look at them: pages and pictures that need no network and no script.

rendering         templates filled in by Jinja2, in which no word becomes markup
templates/        the pages and the one way to write a picture, with their styles
model_view        the numbers that pages and figures show of a release or of a fitted AnchorTopics
topic_layout      places of topics on a map
topic_history     the path of each topic over versions
charts            points and curves, bars, lines
model_page        a version for its readers: topics, map, correlations, history, guarantee
suggestion_page   what `streamtopic suggest` found
version_report    a version for its auditor, as one page
report_check      such a report read back from its file, and checked with a public key alone
plots             figures for notebooks, by matplotlib
"""
