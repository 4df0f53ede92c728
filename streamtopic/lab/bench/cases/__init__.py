"""The benchmarks, one module each; see `streamtopic.lab.bench`."""
