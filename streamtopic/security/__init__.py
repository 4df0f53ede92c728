"""What guards secrets: hidden passwords, private files, and the words for failures of TLS."""
