"""Inputs and states that several parts of a query read are computed once."""
