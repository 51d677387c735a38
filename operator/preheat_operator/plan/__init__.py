"""Pure decisions, one policy a module: observed state in, actions out. No I/O and no clock, so every case can be tested."""
