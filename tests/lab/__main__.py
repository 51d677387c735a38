"""The command line: ``python -m lab <command>``.

Why it exists: starting a cluster for debugging must not need a test. ``venv`` and ``lock`` run with nothing installed,
so the other parts are imported only when they are asked for.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from lab.binaries import PARTS
from lab.command import LabError

if TYPE_CHECKING:
    from lab.cluster import Lab


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab", description="A real one-node Kubernetes, S3 and a registry.")
    parser.add_argument("--name", default=os.environ.get("PREHEAT_LAB") or "preheat", help="which lab; several may run")
    commands = parser.add_subparsers(dest="command", required=True)
    for command, text in {
        "venv": "make the development environment and print where it is",
        "lock": "resolve the requirements files anew",
        "up": "start the lab, building what has not been built",
        "down": "stop it and remove everything of it but what is cached",
        "status": "say what runs",
        "env": 'print exports for a shell: eval "$(python -m lab env)"',
        "images": "build and push the images of the product and of the examples, and print them",
        "install": "build the product's image and install the chart",
        "demo": "show what Preheat does",
    }.items():
        commands.add_parser(command, help=text)
    commands.add_parser(
        "prepare", help="install and build what a lab needs, or the parts of it named here alone, and start nothing"
    ).add_argument("words", nargs="*", metavar="part", help=f"of g++, {', '.join(PARTS)} (default: all)")
    runner = commands.add_parser(
        "run", help="start the lab, run a command that uses it, take the lab down (KEEP=1: leave it)"
    )
    runner.add_argument("--fresh", action="store_true", help="never use a lab that runs already")
    runner.add_argument("words", nargs=argparse.REMAINDER)
    for command, text in {
        "kubectl": "run kubectl on the lab",
        "helm": "run Helm on the lab",
        "ctr": "run containerd's client on the node",
        "exec": "run a command in the node's namespaces",
    }.items():
        commands.add_parser(command, help=text).add_argument("words", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    try:
        if options.command == "run":
            return _with_lab(options.name, options.words, fresh=options.fresh)
        return _run(options.name, options.command, getattr(options, "words", []))
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(name: str, command: str, words: list[str]) -> int:
    if command in ("venv", "lock"):
        from lab import venv

        if command == "lock":
            venv.lock()
        else:
            print(venv.ensure())
        return 0
    from lab import cluster

    if command == "up":
        _describe(cluster.up(name))
    elif command == "down":
        cluster.down(name)
    elif command == "prepare":
        cluster.prepare(words)
    elif command == "status":
        print("\n".join(cluster.status(name)))
    elif command == "demo":
        from lab import install

        lab = cluster.up(name)
        words = [sys.executable, str(install.demo_script())]
        return subprocess.run(words, env={**os.environ, **install.demo_environment(lab)}, check=False).returncode
    else:
        return _use(cluster.attach(name), command, words)
    return 0


def _with_lab(name: str, words: list[str], *, fresh: bool) -> int:
    """Runs a command with a lab and returns its exit code; the lab goes however this ends."""
    from lab import cluster

    def end(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, end)
    words = words[1:] if words[:1] == ["--"] else words
    try:
        if fresh:
            cluster.down(name)
        lab = cluster.up(name)
        return subprocess.run(words, env={**os.environ, **lab.environment()}, check=False).returncode
    finally:
        if os.environ.get("KEEP"):
            print(f"KEEP is set: lab {name} stays; `python -m lab --name {name} down` takes it down", file=sys.stderr)
        else:
            cluster.down(name)


def _use(lab: Lab, command: str, words: list[str]) -> int:
    if command == "env":
        print("\n".join(f"export {key}={shlex.quote(value)}" for key, value in lab.environment().items()))
    elif command == "images":
        from lab import install

        print(f"preheat\t{install.product_image(lab).pinned}")
        for example in ("vision", "pitch"):
            print(f"{example}\t{lab.example_image(example).pinned}")
    elif command == "install":
        print(lab.install_preheat())
    else:
        from lab import isolation
        from lab.paths import tool

        kubeconfig = ["--kubeconfig", str(lab.kubeconfig)]
        argv = {
            "kubectl": [tool("kubectl"), *kubeconfig],
            "helm": [lab.binaries.helm, *kubeconfig],
            "ctr": [*isolation.inside(lab.layout), *lab.node.ctr_command()],
            "exec": isolation.inside(lab.layout),
        }[command]
        os.execvp(argv[0], [*argv, *words])  # becomes that program, terminal and all
    return 0


def _describe(lab: Lab) -> None:
    print(f"""lab {lab.layout.name} is up
  kubectl   export KUBECONFIG={lab.kubeconfig}
  registry  {lab.registry}
  S3        {lab.s3.endpoint}, bucket {lab.s3.bucket}
  logs      {lab.layout.logs}""")


if __name__ == "__main__":
    sys.exit(main())
