"""Test sets, metrics, evaluation reports and the comparison of systems."""
