"""Memory of a program at values of a number that was not recorded: recordings aligned, sizes fitted, replayed."""
