"""Switch each rule about whose work a value is off, and see who then gains.

`python -m assignment.bank rules [NAME ...]`: in a copy of the tree an edit takes one rule away, and the cheats that
it holds are run there. A rule for which none gains holds nothing, and is to be deleted: the command ends with 1.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from assignment.digest import ROOT

PLAYER, SIMULATOR, JUDGE = (f"assignment/{name}" for name in ("player", "simulator", "judge"))


@dataclass(frozen=True)
class Rule:
    """A rule, the edit of one file that switches it off, and the cheats that gain then."""

    name: str
    file: str
    old: str
    new: str
    cheats: tuple[str, ...]


RULES = [
    Rule(
        "what is written last where elements share addresses is unknown",
        f"{PLAYER}/labels.py",
        "overlaps = meets_itself(tensor)",
        "overlaps = False",
        (
            "no_kernel/filled_through_a_stride_of_zero",
            "no_kernel/selected_into_elements_that_overlap",
            "no_kernel/put_into_elements_that_overlap",
        ),
    ),
    Rule(
        "what lies between the elements of a view is not written with it",
        f"{PLAYER}/labels.py",
        "parts = self._labels_of_parts(tensor)",
        "parts = self._labels_of_parts(once(tensor) if uniform is not None else tensor)",
        ("no_kernel/filled_beside_what_pytorch_computed",),
    ),
    Rule(
        "what PyTorch writes as if it were contiguous is",
        f"{PLAYER}/operations.py",
        '    if "_softmax" in operation._schema.name and',
        "    if False and",
        ("no_kernel/a_softmax_beside_its_output",),
    ),
    Rule(
        "lists of outputs are written to",
        f"{PLAYER}/operations.py",
        "written = tensors_in(changed)\n    if not written:\n",
        "written = [leaf for leaf in changed if isinstance(leaf, torch.Tensor)]\n    if False:\n",
        ("no_kernel/outputs_of_unbind_copy_in_a_list", "no_kernel/outputs_of_split_copy_in_a_list"),
    ),
    Rule(
        "a cast keeps the kind of number",
        f"{PLAYER}/derivations.py",
        "is_cast = kind_of(source.dtype) == kind_of(operation.result.dtype)",
        "is_cast = source.is_floating_point() == operation.result.is_floating_point()",
        ("no_kernel/rounded_as_a_complex_number",),
    ),
    Rule(
        "what is added to nothing keeps the kind of number",
        f"{PLAYER}/derivations.py",
        "operation.labels(source) if kind_of(source.dtype) == kind_of(operation.result.dtype) else None\n",
        "operation.labels(source)\n",
        ("no_kernel/made_floats_by_adding_zero",),
    ),
    Rule(
        "a doubt stands for all that is under it",
        f"{PLAYER}/work.py",
        "return bool(wrong[list(self.stands_for(label))].any())",
        "return bool(wrong[min(self.stands_for(label))])",
        ("no_kernel/sum_beside_an_input_under_a_where",),
    ),
    Rule(
        "what is compared chooses, and is nothing else",
        f"{PLAYER}/derivations.py",
        "        under = present\n",
        "        under = {KERNEL}\n",
        ("no_kernel/signs_of_inputs_chosen_by_comparing",),
    ),
    Rule(
        "what chooses is under a doubt, too",
        f"{PLAYER}/derivations.py",
        "    under |= present & _OF_PYTORCH  # also what chooses\n",
        "",
        ("no_kernel/kernels_numbers_chosen_by_halves",),
    ),
    Rule(
        "what works with parts of numbers is a doubt",
        f"{PLAYER}/derivations.py",
        "    if operation.takes_apart():\n",
        "    if False:\n",
        ("no_kernel/summed_by_scaling_bytes_side_by_side",),
    ),
    Rule(
        "what nobody has written is known through operations",
        f"{PLAYER}/work.py",
        "        if unwritten is not None:\n",
        "        if False:\n",
        ("no_kernel/steered_by_a_sum_of_memory_that_nobody_wrote",),
    ),
    Rule(
        "zero, and another value in each element, may lie in unwritten memory",
        f"{SIMULATOR}/undefined.py",
        '_PROBES = ("zero", "one", "all bits", "lowest", "highest", "different")',
        '_PROBES = ("one",)',
        (
            "no_kernel/probed_by_zeros_of_what_nobody_wrote",
            "no_kernel/probed_by_zeros_in_floats_of_what_nobody_wrote",
            "no_kernel/probed_by_the_spread_of_what_nobody_wrote",
        ),
    ),
    Rule(
        "a trial finds unwritten what the program has written since",
        f"{SIMULATOR}/watch.py",
        "            write = write._replace(forget",
        "            0 and write._replace(forget",
        ("no_kernel/probed_by_flags_set_afterwards_of_what_nobody_wrote",),
    ),
    Rule(
        "a fused attention is known by what it dispatches",
        f"{PLAYER}/operations.py",
        "\n_softmax_backward_data _log_softmax ",
        "\n_softmax_backward_data _safe_softmax _log_softmax ",
        ("no_kernel/fused_attention_with_torch_function_off_in_chunks",),
    ),
    Rule(
        "values are cleaned up a few times, not computed so",
        f"{PLAYER}/derivations.py",
        "operation.depth() + 1\n",
        "1\n",
        ("no_kernel/adder_made_of_guards",),
    ),
    Rule(
        "what is read of a copy is known by its labels",
        f"{SIMULATOR}/costs.py",
        "read = [int(by_label[label]) for label in labels] or read",
        'read = [_moved(t, {address(t)}, traffics, "loaded", host.read) for t in inputs]',
        ("no_kernel/read_again_from_a_part_of_a_larger_copy",),
    ),
    Rule(
        "what kernels copy is counted",
        "tests/families.py",
        "    if costs.beside > ",
        "    if 0 > ",
        (
            "no_kernel/a_kernels_own_copy_read_again",
            "no_kernel/a_clamped_copy_read_again",
            "no_kernel/results_written_elsewhere_first",
        ),
    ),
    Rule(
        "what nobody has written is known for every type",
        f"{SIMULATOR}/watch.py",
        "    if region.origins is None:\n        return copied\n",
        "    if True:\n        return is_unwritten(values)\n",
        (
            "no_kernel/steered_by_memory_that_nobody_wrote",
            "no_kernel/steered_by_a_pattern_with_a_byte_of_zero",
        ),
    ),
    Rule(
        "every configuration of an autotuned kernel is played",
        "assignment/plugin/__init__.py",
        "        in_every_configuration(pyfuncitem, run)\n",
        "",
        ("no_kernel/second_configuration_is_wrong", "no_kernel/second_configuration_is_out_of_bounds"),
    ),
    Rule(
        "of many configurations those that give kernels other values are played first",
        f"{JUDGE}/configurations.py",
        "(number in repeats, drawn[number])",
        "drawn[number]",
        ("no_kernel/one_wrong_configuration_of_three_hundred",),
    ),
    Rule(
        "what is left after pruning is played at other sizes than the first",
        "assignment/plugin/__init__.py",
        "    with in_a_configuration(pyfuncitem, run):\n        outcome = yield\n",
        "    outcome = yield\n",
        ("no_kernel/a_wrong_configuration_left_for_some_sizes",),
    ),
    Rule(
        "what is played is what is compiled",
        f"{PLAYER}/compiled.py",
        '"differing": _differing(header, noted)}',
        '"differing": []}',
        (
            "no_kernel/literals_are_one_object_in_python",
            "no_kernel/a_pointer_is_constant_for_the_compiler",
            "no_kernel/a_function_is_described_otherwise",
            "no_kernel/asks_for_its_gpu_by_halves_of_a_name",
            "no_kernel/an_arm_of_an_expression",
            "no_kernel/a_constant_that_is_multiplied_with",
        ),
    ),
    Rule(
        "constants are what they are to the compiler",
        f"{SIMULATOR}/control.py",
        "    return isinstance(static(value), kind)\n",
        "    return isinstance(value, kind)\n",
        ("no_kernel/constants_that_tell_the_simulator",),
    ),
    Rule(
        "constants are formatted as by the compiler",
        f"{SIMULATOR}/control.py",
        "    value = static(value)\n    if isinstance(value, (tensor,",
        "    if isinstance(value, (tensor,",
        ("no_kernel/formatted_constants_that_tell_the_simulator",),
    ),
]


def copied(folder: Path) -> Path:
    """Return a copy of the tracked files, changes included."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def gained(tree: Path, cheat: str) -> str:
    """Run a cheat in a tree; return what it gained, or "" if it was held."""
    command = [sys.executable, "-m", "assignment.bank", "grade", "--quick", "--jobs", "1", f"cheats/{cheat}"]
    ran = subprocess.run([*command, "--kept", str(tree / "kept.jsonl")], cwd=tree, capture_output=True, text=True)
    (tree / "kept.jsonl").unlink(missing_ok=True)
    return "; ".join(line for line in ran.stdout.splitlines() if f"{cheat}: keeps " in line)


def switched_off(rule: Rule, tree: Path) -> list[str]:
    """Return what is wrong: each cheat that is held also without the rule."""
    path = tree / rule.file
    text = path.read_text(encoding="utf-8")
    if text.count(rule.old) != 1:
        return [f"{rule.file} has its edit {text.count(rule.old)} times, expected once: {rule.old.strip()[:60]!r}"]
    path.write_text(text.replace(rule.old, rule.new), encoding="utf-8")
    wrong = []
    for cheat in rule.cheats:
        said = gained(tree, cheat)
        print(f"  without it {cheat}: {said[:150] if said else 'held'}", flush=True)
        if not said:
            wrong.append(f"{cheat} is held without it")
    path.write_text(text, encoding="utf-8")
    return wrong


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", help="parts of rules' names or of their cheats'")


def main(names: list[str]) -> int:
    chosen = [rule for rule in RULES if not names or any(n in rule.name or n in str(rule.cheats) for n in names)]
    n_wrong = 0
    with tempfile.TemporaryDirectory(prefix="rules-") as folder:
        tree = copied(Path(folder))
        for rule in chosen:
            print(f"{rule.name} ({rule.file})", flush=True)
            wrong = switched_off(rule, tree)
            print(*(f"  {line}" for line in wrong), sep="\n", end="\n" if wrong else "")
            n_wrong += bool(wrong)
    print(f"{len(chosen) - n_wrong} of {len(chosen)} rules hold somebody")
    return 1 if n_wrong else 0
