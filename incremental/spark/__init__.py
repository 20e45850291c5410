"""Spark itself: a session with Delta Lake on this machine, and access to Catalyst through Py4J.

The package knows nothing of tables, views or refreshes. To change the settings of a session, open session.py; the
search for a Java, java.py; the Delta jars, jars.py; what `deltafold doctor` checks, doctor.py; a Spark that several
processes share, shared_session.py; a call into Spark's internals, catalyst.py; how a Java exception becomes a sentence,
java_errors.py.
"""
