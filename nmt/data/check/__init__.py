"""Checks of parallel corpora for problems that harm training."""

from nmt.data.check.checks import BITS, CHECKS, Check, Severity
from nmt.data.check.report import Example, Finding, Report
from nmt.data.check.run import repair, run_checks, work_directory

__all__ = [
    "BITS",
    "CHECKS",
    "Check",
    "Example",
    "Finding",
    "Report",
    "Severity",
    "repair",
    "run_checks",
    "work_directory",
]
