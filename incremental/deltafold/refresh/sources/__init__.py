"""The inputs of a refresh: declared sources, the views that a view reads, and the checks of declared constraints."""
