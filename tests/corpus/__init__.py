"""The corpus: queries that users really have, run in every mode over random histories, compared with Spark."""
