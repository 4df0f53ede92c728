"""Documents to count, shared by the tests of this folder."""
