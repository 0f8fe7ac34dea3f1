"""Test sets, metrics, evaluation reports, the comparison of systems, and the calibration of
confidences."""
