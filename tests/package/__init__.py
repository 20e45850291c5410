"""The installed package: what importing it starts, what its extras bring, and that it lives beside others."""
