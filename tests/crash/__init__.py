"""A refresh that is stopped anywhere is finished by the next one."""
