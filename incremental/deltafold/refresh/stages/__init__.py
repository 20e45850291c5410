"""The stages of a program in one epoch: states, recursions, iterations, and the view over them."""
