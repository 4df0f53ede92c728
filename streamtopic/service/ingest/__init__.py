"""From records of the documents topic to counts: read, decode, resolve, apply."""
