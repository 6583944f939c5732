"""Write handout/figures/*.svg: python -m assignment.figures [NAME ...]"""

import argparse
from pathlib import Path

from assignment.figures import FIGURES

FOLDER = Path(__file__).parents[2] / "handout" / "figures"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assignment.figures", description="Draw the handout's figures.")
    parser.add_argument("names", nargs="*", choices=[[], *FIGURES], metavar="NAME", help=", ".join(FIGURES))
    names = parser.parse_args(arguments).names or list(FIGURES)
    FOLDER.mkdir(exist_ok=True)
    for name in names:
        (FOLDER / f"{name}.svg").write_text(FIGURES[name]().svg(), encoding="utf-8")
    print(f"{len(names)} figures in {FOLDER.parent.name}/{FOLDER.name}/")


if __name__ == "__main__":
    main()
