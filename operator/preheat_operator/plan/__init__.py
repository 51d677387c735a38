"""Pure decisions, one policy a module: observed state in, actions out; no I/O and no clock, so each case can be tested."""
