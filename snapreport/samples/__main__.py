"""`python -m snapreport.samples` is `snapreport sample`."""

from snapreport.samples.command import sample

sample(prog_name="python -m snapreport.samples")
