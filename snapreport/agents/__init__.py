"""What programs that write and read text with a limited context are given: short answers, as tools and as a skill."""
