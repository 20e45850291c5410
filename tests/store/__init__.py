"""Tests of the address of a view's answer."""
