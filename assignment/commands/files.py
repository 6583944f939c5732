"""The report as JSON, JUnit XML, Markdown and a page, and how they are written."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from assignment import text
from assignment.commands import markdown, progress
from assignment.commands.report import short
from assignment.commands.settings import Settings
from assignment.verdict import reporting, score
from assignment.verdict.entries import Report

NOTHING: Mapping[str, str] = MappingProxyType({})


def write(settings: Settings, data: Report, sources: Mapping[str, str] = NOTHING) -> list[str]:
    """Write the files that were asked for; returns what could not be written, and why.

    sources: the submission's, for a page that shows the lines around those that a message names.
    """

    def as_page(report: Report) -> bytes:
        from assignment.commands import html_page  # loads jinja2

        return html_page.of_report(report, sources, progress.scores(settings.path, report), settings.watch)

    unwritten = []
    paths = settings.json, settings.junit, settings.markdown, settings.html
    for path, form in zip(paths, (as_json, junit, as_markdown, as_page), strict=True):
        try:
            if path:
                replace(path, form(data))
        except Exception as error:
            unwritten.append(text.line(f"{path} was not written: {error}"))
    return unwritten


def replace(path: Path, content: bytes) -> None:
    """Write a file by rename, so that none sees half of it; into what is no file, such as /dev/null, directly."""
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(content)
        return
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def as_markdown(report: Report) -> bytes:
    return markdown.page(report).encode()


def as_json(report: Report) -> bytes:
    return json.dumps(report, indent=2, allow_nan=False, ensure_ascii=False).encode() + b"\n"


def junit(report: Report) -> bytes:
    """Return the report as the JUnit XML that continuous-integration servers read: one test case a check."""
    suites = ElementTree.Element("testsuites", name="cs336_kernels")
    for problem in reporting.problems_of(report):
        checks = problem["checks"]
        lost = [check for check in checks if check["status"] not in (*score.KEEPS_POINTS, score.NOT_GRADED)]
        skipped = sum(check["status"] == score.NOT_GRADED for check in checks)
        counts = {"tests": len(checks), "failures": len(lost), "skipped": skipped}
        attributes = {"name": problem["name"], **{key: str(value) for key, value in counts.items()}}
        suite = ElementTree.SubElement(suites, "testsuite", attributes)
        for check in checks:
            case = ElementTree.SubElement(suite, "testcase", classname=problem["name"], name=check["name"])
            if check["status"] == score.NOT_GRADED:
                ElementTree.SubElement(case, "skipped", message=check["claim"])
            elif check in lost:
                failure = ElementTree.SubElement(case, "failure", message=f"{check['status']}: {check['claim']}")
                failure.text = short(check["message"])
    return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
