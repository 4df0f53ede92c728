module streamtopic.test/interop

go 1.24.0

require (
	filippo.io/torchwood v0.9.0
	golang.org/x/mod v0.31.0
)
