"""A report in the forms of GitHub's classrooms: `python -m assignment.commands.github FOLDER [STATUS]`.

FOLDER is where `grade.py` has written report.json, with exit status STATUS. It writes result.json there, as Classroom
50 reads it, and prints `result=…`, as GitHub Classroom's reporter reads the output of a step. Both hold our own words
alone, none of a submission's. Where there is no report, report.md is written too, with what `grade.py` has printed.
"""

import argparse
import base64
import datetime
import json
import os
from collections.abc import Mapping
from pathlib import Path

from assignment import text
from assignment.commands import markdown, report
from assignment.protocol.messages import Writable
from assignment.verdict import reporting, score
from assignment.verdict.entries import ProblemEntry, Report

HUNDREDTHS = 100  # of a point: Classroom 50 takes whole numbers
MAX_SAID = 4_000  # characters of what grade.py has printed
NO_REPORT = "There is no grade"


def tests(data: Report) -> list[ProblemEntry]:
    """Return the problems that could be graded."""
    return [problem for problem in data["problems"] if problem["gradable"]]


def passes(problem: ProblemEntry) -> bool:
    return problem["score"] >= problem["gradable"]


def for_reporter(data: Report) -> dict[str, Writable]:
    """Return what GitHub Classroom's reporter reads: a test for each problem, with points."""
    found = tests(data)
    broken = data["grader_failures"] or any(e["status"] == score.GRADER_ERROR for e in reporting.entries_of(data))
    passed = all(map(passes, found))
    return {
        "version": 1,
        "status": "error" if broken else "pass" if passed else "fail",
        "max_score": data["gradable"],
        "tests": [
            {
                "name": test["name"],
                "status": "pass" if passes(test) else "fail",
                "score": test["score"],
                "message": report.remark(test, data),
                "test_code": f"uv run grade.py --only {test['name']}",
                "filename": "",
                "line_no": 0,
            }
            for test in found
        ],
    }


def for_classroom50(data: Report, told: Mapping[str, str]) -> dict[str, Writable]:
    """Return Classroom 50's result.json, in hundredths of a point; `told` is the environment of its runner."""
    repository = f"{told.get('GITHUB_SERVER_URL', 'https://github.com')}/{told.get('GITHUB_REPOSITORY', '')}"
    commit = told.get("COMMIT_URL") or f"{repository}/commit/{told.get('GITHUB_SHA', '')}"
    graded = tests(data)
    scores, most = ([round(test[key] * HUNDREDTHS) for test in graded] for key in ("score", "gradable"))
    found: list[Writable] = [
        {
            "test-name": test["name"],
            "passed": passes(test),
            "score": points,
            "max-score": of,
        }
        for test, points, of in zip(graded, scores, most, strict=True)
    ]
    return {
        "schema": "classroom50/result/v1",
        "classroom": told.get("CLASSROOM", ""),
        "assignment": told.get("ASSIGNMENT", ""),
        "submission": told.get("SUBMISSION_TAG") or told.get("GITHUB_REF_NAME", ""),
        "commit": commit,
        "release": told.get("RELEASE_URL") or repository,
        "review": told.get("REVIEW_URL") or commit,
        "datetime": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "score": sum(scores),
        "max-score": sum(most),
        "tests": found,
    }


def without_report(folder: Path, status: int) -> str:
    """Return a page for a run that has left no report, with what it has said."""
    said = text.of(folder / "report.txt")[-MAX_SAID:]
    why = "what was handed in cannot be used" if status == 2 else f"the grader failed, with exit status {status}"
    return "\n".join([f"# {NO_REPORT}: {why}", "", *markdown.block(said), ""])


def main(arguments: list[str] | None = None) -> int:
    about = (__doc__ or "").split(":")[0]
    parser = argparse.ArgumentParser(prog="python -m assignment.commands.github", description=about)
    parser.add_argument("folder", type=Path)
    parser.add_argument("status", nargs="?", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        data = json.loads((options.folder / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        (options.folder / "report.md").write_text(without_report(options.folder, options.status), encoding="utf-8")
        return 0
    result = json.dumps(for_classroom50(data, os.environ), indent=2) + "\n"
    (options.folder / "result.json").write_text(result, encoding="utf-8")
    print(f"result={base64.b64encode(json.dumps(for_reporter(data)).encode()).decode()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
