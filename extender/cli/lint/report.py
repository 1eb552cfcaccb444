"""How a check is printed, and its exit status."""

from extender.cli.lint.codes import Finding
from extender.cli.lint.files import Report
from extender.cli.terminal.exit_status import ERROR, OK
from extender.telemetry.one_line import one_line


def exit_status(report: Report, *, strict: bool) -> int:
    """ERROR if there are errors, with ``strict`` also for warnings. A file that cannot be checked
    is an error.
    """
    return ERROR if report.errors or (strict and report.findings) else OK


def text_of_report(report: Report) -> str:
    """The report for people: what each file is, then each finding in two lines, as compilers print
    them.
    """
    lines = [one_line(f"{file}: {summary}") for file, _, summary in report.summaries]
    for one in report.findings:
        lines.append(one_line(f"{_where(one)}: {one.code.severity} {one.code.code}: {_said(one)}"))
        lines.append(f"    {one.code.happens} {one.code.fix}")
    warnings = len(report.findings) - report.errors
    if report.findings:
        lines.append(f"errors: {report.errors}, warnings: {warnings}")
    return "\n".join(lines)


def document_of_report(report: Report) -> dict[str, object]:
    """The report for tools."""
    return {
        "files": [
            {"file": file, "kind": kind, "summary": summary}
            for file, kind, summary in report.summaries
        ],
        "findings": [
            {
                "code": one.code.code,
                "severity": str(one.code.severity),
                "file": one.file,
                "line": one.place.line,
                "column": one.place.column,
                "field": one.field,
                "message": one.message,
                "happens": one.code.happens,
                "fix": one.code.fix,
            }
            for one in report.findings
        ],
    }


def _where(one: Finding) -> str:
    return f"{one.file}:{one.place.line}:{one.place.column}" if one.place.line else one.file


def _said(one: Finding) -> str:
    return f"{one.field}: {one.message}" if one.field else one.message
