"""What is installed, as its files tell it: layout, files, claims, and the digests of the bytes."""
