"""Program to tables: the Spark session, lowering, the feed of changes, the lake, and the refresh protocol."""
