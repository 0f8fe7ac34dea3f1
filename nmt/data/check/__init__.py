"""Faults of parallel text that cost a training, found before it."""

from nmt.data.check.checks import BITS, KINDS, Kind, Severity
from nmt.data.check.report import Example, Finding, Report, Text
from nmt.data.check.run import check, mend

__all__ = ["BITS", "KINDS", "Example", "Finding", "Kind", "Report", "Severity", "Text", "check", "mend"]
