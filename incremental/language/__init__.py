"""Text to plan: Spark SQL, DataFrame functions and MRQL come in, plans of the algebra go out."""
