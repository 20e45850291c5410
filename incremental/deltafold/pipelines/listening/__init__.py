"""Take lines from a socket into files that a `Files` source lands."""
