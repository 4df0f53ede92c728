"""What a process tells about itself: metrics, health, logs and spans, and the address where they are read."""
