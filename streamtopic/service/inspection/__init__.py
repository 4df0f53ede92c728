"""What can be known of a service: facts for people and pages, and an examination for faults."""
