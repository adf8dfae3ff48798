"""What differs between two sides, and whether they did the same work."""
