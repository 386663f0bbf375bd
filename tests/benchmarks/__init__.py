"""What wflab costs, beside the raw limit of the same disk in the same run: `python -m tests.benchmarks`."""
