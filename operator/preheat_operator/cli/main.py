"""The command line of `preheat`: what can be asked, and which module answers.

argparse, since commands with a dozen options need no library, and since `preheat run` stands between a script
and its start: a command's own imports are made only when it is the one that was asked for.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from preheat_operator.cli import exits
from preheat_runtime.policy import WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: Final = {
    "compile": "preheat_operator.cli.compile",
    "run": "preheat_operator.cli.run",
    "inspect": "preheat_operator.cli.inspect",
    "diff": "preheat_operator.cli.diff",
    "why": "preheat_operator.cli.why",
    "history": "preheat_operator.cli.history",
    "rebuild": "preheat_operator.cli.asked",
    "rollback": "preheat_operator.cli.asked",
    "pin": "preheat_operator.cli.asked",
    "unpin": "preheat_operator.cli.asked",
}


@dataclass(frozen=True)
class _Flag:
    flag: str
    help: str


SERVING: Final = {
    "onMiss": _Flag("--on-miss", "a call that nothing compiled answers"),
    "onReject": _Flag("--on-reject", "a call whose target was not good enough"),
    "verify": _Flag("--verify", "when a package's first answer is compared with eager's"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code (docs/cli.md)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # What follows the first -- is the user's command, whatever it looks like.
    command: list[str] | None = None
    if words[:1] == ["run"] and "--" in words:
        mark = words.index("--")
        words, command = words[:mark], words[mark + 1 :]
    options = _parser().parse_args(words)
    options.words = command
    from preheat_operator.cli import output

    _keep_standard_numbers()
    output.begin()
    return output.ended(_code(options))


def _code(options: argparse.Namespace) -> int:
    """What the command found, as its exit code."""
    from preheat_operator.cli.errors import CommandError, exit_code
    from preheat_operator.cli.output import say
    from preheat_operator.store.errors import StoreError

    try:
        return int(importlib.import_module(COMMANDS[options.command]).main(options))
    except CommandError as error:
        say(str(error))
        return error.code
    except StoreError as error:
        say(f"{error.reason}: {error}")
        return exit_code(error)
    except KeyboardInterrupt:
        return exits.SIGNALLED + 2
    except Exception as error:
        # Python's own code for this is 1, which says of `compile` and `diff` what they found.
        say(traceback.format_exc().rstrip())
        say(f"Internal: a fault of Preheat: {type(error).__name__}: {error}")
        return exits.INTERNAL


def _keep_standard_numbers() -> None:
    """A file that is opened later must not get the number of a standard stream that is closed: others write to it.

    What we start and become still finds it closed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="preheat", allow_abbrev=False, description="Compiles PyTorch models ahead of time and starts scripts hot."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    each = commands.add_parser("compile", allow_abbrev=False, help="compile a model here, as a compile Job would")
    each.add_argument("-f", "--file", required=True, metavar="FILE", help="YAML with the CompiledModel; - reads it")
    _store(each, required=True)
    each.add_argument("--hardware", metavar="NAME", help="which hardware profile this machine is; needed with several")
    each.add_argument("--image", default="local", metavar="NAME", help="the image this runs in, for the record (local)")
    each.add_argument("--python", metavar="PATH", help="the Python that serves the model (python3 of PATH)")
    each.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="in place of spec.compile.timeoutSeconds")
    each.add_argument("--work", type=Path, metavar="DIR", help="folder that is kept: a second run goes on where it was")
    _output(each)

    each = commands.add_parser(
        "run",
        allow_abbrev=False,
        help="start a script hot",
        usage="preheat run [options] NAME -- COMMAND [ARGUMENT ...]",
    )
    each.add_argument("name", metavar="NAME", help="name of the CompiledModel, or a manifest's digest")
    _store(each, required=True)
    each.add_argument("--image", metavar="NAME", help="only what was compiled for this image (any)")
    each.add_argument("--cache", type=Path, metavar="DIR", help="where artifacts are kept (~/.cache/preheat/revisions)")
    each.add_argument("--timeout", type=_seconds, default=60, metavar="SECONDS", help="deadline of the fetch (60)")
    each.add_argument(
        "--when-missing", choices=["Cold", "Fail"], default="Cold",
        help="with nothing usable: start all the same (Cold), or do not start (Fail)",
    )  # fmt: skip

    for name, what in SERVING.items():
        words = WORDS[name]
        each.add_argument(
            what.flag, choices=list(words), default=words[0], help=f"{what.help} ({words[0]}), as spec.serving.{name}"
        )

    each = commands.add_parser("inspect", allow_abbrev=False, help="explain a manifest")
    each.add_argument("what", metavar="DIGEST|NAME|FILE", help="a manifest: its digest, a model's name, or a file")
    _store(each, required=False)
    _output(each)

    each = commands.add_parser("diff", allow_abbrev=False, help="say why the keys of two manifests' targets differ")
    for place in "ab":
        each.add_argument(
            place, metavar=place.upper(), help="a digest, a model's name, or a file: a manifest or a report.json"
        )
    _store(each, required=False)
    _output(each)

    each = commands.add_parser("why", allow_abbrev=False, help="say why a pod is cold, or that it is not")
    each.add_argument("pod", metavar="POD", help="name of the pod")
    each.add_argument("-n", "--namespace", metavar="NAME", help="its namespace (that of the kubeconfig's context)")
    _output(each)
    _of_a_model(commands)
    return parser


def _of_a_model(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, what, revision in (
        ("history", "the revisions of a CompiledModel: causes, times, digests, verdicts, what pods get", ""),
        ("rebuild", "compile a CompiledModel again, whatever is there", ""),
        ("rollback", "give pods the revision before the one they get", "?"),
        ("pin", "give pods of a revision's image that revision, whatever is newer", "1"),
        ("unpin", "give pods the newest ready revision again", ""),
    ):
        each = commands.add_parser(name, allow_abbrev=False, help=what)
        each.add_argument("name", metavar="NAME", help="name of the CompiledModel")
        if revision:
            each.add_argument(
                "revision", metavar="REVISION", nargs="?" if revision == "?" else None, help="as history names it"
            )
        each.add_argument("-n", "--namespace", metavar="NAME", help="its namespace (that of the kubeconfig's context)")
        if name == "history":
            _output(each)


def _store(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--store", required=required, metavar="STORE", help="a folder, or s3://bucket[/prefix]; credentials: AWS_*"
    )
    parser.add_argument("--namespace", metavar="NAME", help="namespace of the model (default)")
    parser.add_argument("--tenant", metavar="NAME", help="tenant in the store (local.<namespace>)")


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", choices=["text", "json"], default="text", help="for people, or for programs")


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 172800:
        raise argparse.ArgumentTypeError(f"{text!r} must be whole seconds from 1 to 172800")
    return int(text)
