"""What a process tells about itself, and the address where it is read.

metrics           the catalogue of all metrics
logs              the names of all events that are logged, and a line of JSON for each
tracing           spans that follow a deletion, if a process has OpenTelemetry
http_server       the HTTP server of pages, and of what a process tells about itself
open_connections  a listening socket with a place for everybody
"""
