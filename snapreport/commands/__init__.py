"""Commands of the command line beside the report itself, each loaded when it runs."""
