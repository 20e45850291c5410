"""Define the reports of refreshes, landings, verification and upkeep, as plain data and JSON."""
