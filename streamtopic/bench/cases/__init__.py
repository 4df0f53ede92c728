"""The benchmarks, one module each; see `streamtopic.bench`."""
