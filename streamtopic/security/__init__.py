"""What guards secrets.

concealing     passwords stay out of output, logs and errors
private_files  files that only their owner may read, or that must survive a power failure
tls_faults     failures of TLS, in words that name the remedy
"""
