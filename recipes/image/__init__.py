"""Models of images, value by value."""
