"""The `preheat` command: compiles, inspects and serves without a cluster, with the code that runs in one."""
