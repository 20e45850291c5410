"""Translate Catalyst's plans and expressions into the algebra, one module for each kind of node."""
