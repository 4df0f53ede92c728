"""Everything that a person looks at, and the one HTTP server.

Pages and pictures, which need no network and no script:
    rendering       templates filled in by Jinja2, in which words never become markup
    templates/      the pages and the picture, with their style
    model_view      numbers of a release or of a fitted AnchorTopics, places of topics on a map and over versions
    plots           figures of a model and curves over versions, for notebooks and for pages
    version_page    the page of a version: for readers, for an auditor, and on the server
The server, `streamtopic serve`:
    service_view    what the pages read of a service: one reader at a time, each answer kept for a few seconds
    gate            hosts, sizes and the token of all requests
    web_pages       addresses to pages, probes, metrics and requests for deletions

Starlette and Uvicorn come with the extra `serve`; no module but those of the server imports them. The server itself is
`monitoring/http_server.py`.
"""
