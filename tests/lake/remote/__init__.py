"""Warehouses at URIs: records, leases, and refreshes. By day on viewfs, which is a folder here; by night on S3."""
