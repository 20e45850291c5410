"""Keep the small files of a warehouse at any address that Hadoop knows: `s3a:`, `hdfs:`, `abfss:`, `gs:`."""
