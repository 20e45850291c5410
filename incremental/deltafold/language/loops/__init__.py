"""Loops as a user writes them: functions of DataFrames, their batch definition, and how a query with them is read."""
