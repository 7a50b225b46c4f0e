"""What is wrong with a snapshot's memory, and what stands behind its peak: found in the timelines, told in words."""
