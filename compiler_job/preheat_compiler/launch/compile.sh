#!/bin/sh
# Finds the image's Python and starts the compile driver with it. Why it exists: when the workload's own command does
# not name a Python, only a shell in its image can look for one.
here=$(dirname "$0")
for python in python3 python; do
    path=$(command -v "$python" 2>/dev/null) || continue
    if "$path" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        exec "$path" "$here/compile.py" "$@"
    fi
    old="$old $path ($("$path" -V 2>&1))"
done
log=/dev/termination-log
previous=
for argument in "$@"; do
    [ "$previous" = --termination-log ] && log=$argument
    previous=$argument
done
if [ -n "$old" ]; then
    message="the image has no Python of 3.10 or later on PATH, only:$old"
else
    message="the image has no python3 and no python on PATH; put the Python that serves the model on PATH, or let the container's command begin with it"
fi
echo "preheat: $message" >&2
printf '{"v":1,"reason":"TorchMissing","message":"%s"}' "$(printf %s "$message" | tr -d '"\\' | tr '\n' ' ')" >"$log"
exit 65
