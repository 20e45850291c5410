"""Define the reports of refreshes, landings, verification and maintenance, as plain data and JSON."""
