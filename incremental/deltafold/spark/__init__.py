"""Start Spark with Delta Lake, and call Catalyst through Py4J.

The package knows nothing of tables, views or refreshes. To change the settings of a session, open session_settings.py;
those of Hadoop that it drops, hadoop_settings.py; how it starts, session.py; the search for a Java, and Delta's jars,
jvm/; what `deltafold doctor` checks, doctor.py; a Spark that several processes share, host/; a call into Spark's
internals, catalyst.py; the messages of Java exceptions, java_errors.py.
"""
