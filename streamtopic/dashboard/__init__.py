"""The dashboard: pages for an operator and a privacy officer, from a server of its own.

service_view      what the pages read of a service: one reader at a time, each answer kept for a few seconds
page_facts        the facts of each page, as values
attention         what a person must act on, with the remedy
gate              hosts, sizes and headers of all requests; the token, visits and their forms
web_pages         addresses to pages
dashboard_server  the server

Starlette and Uvicorn come with the extra `dashboard`; nothing outside this folder imports them.
"""
