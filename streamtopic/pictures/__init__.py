"""Models as people look at them: pages and pictures that need no network and no script.

    markup       elements in which no word can become markup
    style        colours, light and dark, screen and paper
    layout       where topics lie on a map
    lines        line charts
    axes         axes, even or logarithmic, and the sheet of a chart that is a file of its own
    scatter      points and curves between two axes
    bars         bars side by side
    page         a self-contained page
    view         what is shown of a release or of a fitted AnchorTopics
    model_page   a version: topics, their map, correlations, history, guarantee
    suggestion   what `streamtopic suggest` found

Figures for notebooks are in `streamtopic.plots`.
"""
