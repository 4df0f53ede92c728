"""How everything above is measured (bench) and broken (faults); nothing that serves imports it."""
