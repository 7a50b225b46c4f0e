"""``python -m snapreport``."""

from snapreport.cli import main

if __name__ == "__main__":
    main(prog_name="snapreport")
