"""Pure decisions, one policy a module: observed state in, actions out. No I/O, no clock: every case can be tested."""
