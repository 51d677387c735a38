"""First answers side by side: eager, torch.compile cold, a warm cache directory, torch's mega-cache, b10-transfer, Preheat.

Rounds of one start each way, in an order that a printed seed shuffles; every start is a fresh process, and a ratio is that to
the eager start of the same round, so drift of the machine hits both. Two measures: from before the process starts to its first
answer, and from the end of `import torch`. What is ours to lose: Preheat must be within TARGET of eager in both, and ahead of
every peer. Exits 1 on a miss, or when a start was not what its way is called.

    python benchmarks/peers.py [--quick] [--only NAME …] [--minutes 55]

Finished rounds are kept outside the checkout: after `--minutes` the run ends with 3, and the same command goes on. `--quick`
makes few rounds with fewer models, and writes nothing to docs/measured unless `--out` says where.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import torch
from artifacts import artifact, work_folder
from peer_report import chart, judge, summary, table
from peer_subjects import Model, Place, Row, Script, Subject
from peer_ways import B10, COLD, EAGER, MEGA, TRACED, WARM
from shared import MEASURED, origin, out_folder, save
from volume import PLACE, enter

from architectures.table import BY_NAME, Architecture, tensor, tokens

MODELS = ("resnet18", "mobilenet_v3_large", "convnext_tiny", "bert", "llama", "unet", "crepe", "perceptron")
QUICK_MODELS = ("bert", "perceptron")
SCRIPT = "open_clip"
ROUNDS, QUICK_ROUNDS = 15, 3
#: Cold starts are slow and far from everything else; TRACED is no default of torch's.
FEWER = {COLD: 2, TRACED: 7}
UNFINISHED = 3
CLIP = Architecture(
    name=SCRIPT, factory="contrastive:clip", args=(tensor(2, 3, 224, 224), tokens(2, 77, high=49408)), kind="dict",
    environment={"CLIP_MODEL": "ViT-S-32-alt"},
)  # fmt: skip
PERCEPTRON = Architecture(name="perceptron", factory="plain:perceptron", args=(tensor(8, 256),))


def subject(name: str) -> Subject:
    """One to compare, with what a user has of it who gives no `keepIf`; compiling it takes minutes at the first time."""
    place = Place(Path(PLACE) / name, Path(PLACE) / "start")
    architecture = {**BY_NAME, PERCEPTRON.name: PERCEPTRON, SCRIPT: CLIP}[name]
    made = artifact(architecture).by_usual_gate()
    return Script(made, place) if name == SCRIPT else Model(made, place)


class Rounds:
    """What was measured so far, a line for each round; `seed` is that of the first part of the run."""

    def __init__(self, folder: Path, seed: int, limits: dict[str, int]) -> None:
        """`limits`: the ways that are not in every round, with in how many of the first they are."""
        self._folder, self._limits = folder, limits
        folder.mkdir(exist_ok=True)
        kept = folder / "seed"
        self.goes_on = kept.exists()
        if not self.goes_on:
            kept.write_text(str(seed))
        self.seed = int(kept.read_text())

    def of(self, name: str) -> list[dict[str, Row]]:
        """The finished rounds of one subject: a row for each way."""
        file = self._folder / f"{name}.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def run(self, each: Subject, number: int) -> None:
        """One start in each way; nothing is kept of a round that did not end."""
        ways = [way for way in each.ways if number < self._limits.get(way, number + 1)]
        random.Random(f"{self.seed}/{each.name}/{number}").shuffle(ways)
        rows = {way: each.start(way) for way in ways}
        with (self._folder / f"{each.name}.jsonl").open("a") as file:
            file.write(json.dumps(rows) + "\n")
        total = {way: rows[way]["total_seconds"] / rows[EAGER]["total_seconds"] for way in ways}
        print(f"round {number + 1}, {each.name}: {', '.join(f'{w} {r:.2f}' for w, r in total.items())}", flush=True)
        for way, row in rows.items():
            for fault in row["faults"]:
                print(f"  NOT WHAT IT IS CALLED: {way}: {fault}", flush=True)

    def forget(self) -> None:
        """They are in the results now."""
        for path in self._folder.iterdir():
            path.unlink()


def main() -> int:
    """Measure, write docs/measured/peers.{json,md,svg}, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=[*MODELS, SCRIPT], metavar="NAME")
    parser.add_argument("--rounds", "--pairs", type=int)
    parser.add_argument(
        "--peer-rounds", type=int, help="rounds with the quick peers in them; all, unless said otherwise"
    )
    parser.add_argument("--minutes", type=float, default=55)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--out", type=out_folder)
    options = parser.parse_args()
    begin = time.monotonic()
    names = options.only or (*(QUICK_MODELS if options.quick else MODELS), SCRIPT)
    wanted = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    out = options.out or (None if options.quick or options.only else MEASURED)
    enter(work_folder("peers", "peer_start.py", "peer_subjects.py", "peer_ways.py", "volume.py"))
    limits = FEWER | (dict.fromkeys((WARM, MEGA, B10), options.peer_rounds) if options.peer_rounds else {})
    folder = f"rounds-{wanted}-{options.peer_rounds or wanted}-{'-'.join(names)}"
    rounds = Rounds(Path(PLACE) / folder[:200], options.seed, limits)
    going = ", going on" if rounds.goes_on else ""
    print(f"seed {rounds.seed}{going}; {wanted} rounds; fewer of {limits}", flush=True)

    subjects = []
    for name in names:
        subjects.append(subject(name))
        subjects[-1].prepare()
        if time.monotonic() - begin > 60 * options.minutes:
            return unfinished()
    for number in range(wanted):
        for each in subjects:
            if len(rounds.of(each.name)) <= number:
                rounds.run(each, number)
            if time.monotonic() - begin > 60 * options.minutes:
                return unfinished()

    results: dict[str, Any] = {
        **origin(), "torch": torch.__version__, "seed": rounds.seed,
        "subjects": {each.name: summary(rounds.of(each.name), each.bytes_moved()) for each in subjects},
        "failing": {each.name: each.failing for each in subjects if each.failing},
        "rejected": {each.name: each.artifact.rejected for each in subjects if each.artifact.rejected},
    }  # fmt: skip
    results["misses"] = judge(results["subjects"])
    text = table(results)
    print(text)
    if out is not None:
        save(out, "peers", results, text)
        (out / "peers.svg").write_bytes(chart(results))
    rounds.forget()
    return 1 if results["misses"] else 0


def unfinished() -> int:
    """Say how it goes on."""
    print("not finished; what was measured is kept: the same command goes on", flush=True)
    return UNFINISHED


if __name__ == "__main__":
    sys.exit(main())
