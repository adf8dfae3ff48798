"""Which of the changes can have made grow what grew."""
