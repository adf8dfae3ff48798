"""What explains a difference between runs: pure functions over records and arrays."""
