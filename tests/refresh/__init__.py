"""The protocol: epochs, versions, chains, policies, parts, reuse."""
