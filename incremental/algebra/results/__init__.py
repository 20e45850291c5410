"""What refreshes, landings, verification and maintenance report, as plain data and JSON."""
