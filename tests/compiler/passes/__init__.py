"""The passes of the compiler, each on plans made by hand."""
