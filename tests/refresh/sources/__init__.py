"""Tests of the refresh protocol: epochs, versions, chains, policies, parts, reuse."""
